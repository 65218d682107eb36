// Where a trace is written: what it replaces and what it does not, and what is known beforehand.

#include "client/output_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/support/temp_folder.h"

namespace metp {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class OutputFileTest : public ::testing::Test {
 protected:
  std::string In(const std::string& name) const { return folder_.path() + "/" + name; }
  static void Put(const std::string& path, const std::string& text) { std::ofstream(path) << text; }
  static std::string Read(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static absl::Status Write(const std::string& path, const std::string& text) {
    const auto file = OutputFile::Open(path);
    if (!file.ok()) return file.status();
    if (const absl::Status begun = (*file)->Begin(); !begun.ok()) return begun;
    return (*file)->Write(text);
  }
  /// Everything in the folder.
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_.path()))
      names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }

  testing::TempFolder folder_;
};

TEST_F(OutputFileTest, IsThereWholeOrNotAtAll) {
  Put(In("a"), "old");
  {
    const auto file = OutputFile::Open(In("a"));
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_THAT(Names(), ElementsAre("a"));
    ASSERT_TRUE((*file)->Begin().ok());
    EXPECT_EQ(Names().size(), 2u);
    EXPECT_EQ(Read(In("a")), "old");
  }
  EXPECT_THAT(Names(), ElementsAre("a"));
  EXPECT_EQ(Read(In("a")), "old");
  ASSERT_TRUE(Write(In("a"), "new").ok());
  EXPECT_EQ(Read(In("a")), "new");
  Put(In("b." + std::to_string(getpid()) + ".part"), "of one that was killed");
  ASSERT_TRUE(Write(In("b"), "b").ok());
  EXPECT_THAT(Names(), ElementsAre("a", "b"));
}

TEST_F(OutputFileTest, FollowsLinks) {
  Put(In("file"), "old");
  fs::create_symlink("file", In("link"));
  fs::create_symlink("link", In("link-to-link"));
  ASSERT_TRUE(Write(In("link-to-link"), "new").ok());
  EXPECT_EQ(Read(In("file")), "new");
  fs::create_directory(In("folder"));
  fs::create_symlink("folder/none-yet", In("forward"));
  ASSERT_TRUE(Write(In("forward"), "made").ok());
  EXPECT_EQ(Read(In("folder/none-yet")), "made");
  for (const char* link : {"link", "link-to-link", "forward"}) EXPECT_TRUE(fs::is_symlink(In(link))) << link;
}

TEST_F(OutputFileTest, WritesIntoWhatIsNoRegularFile) {
  const std::string pipe = In("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const int reader = open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  ASSERT_GE(reader, 0);
  ASSERT_TRUE(Write(pipe, "text").ok());
  char text[16];
  EXPECT_EQ(read(reader, text, sizeof text), 4);
  EXPECT_THAT(Names(), ElementsAre("pipe"));
  fs::create_symlink("pipe", In("link"));
  ASSERT_TRUE(Write(In("link"), "text").ok());
  EXPECT_EQ(read(reader, text, sizeof text), 4);
  close(reader);
  EXPECT_TRUE(fs::is_fifo(pipe));
  EXPECT_TRUE(fs::is_symlink(In("link")));
}

TEST_F(OutputFileTest, SaysBeforehandWhereNothingCanBe) {
  const auto why = [](const std::string& path) {
    return std::string(OutputFile::Open(path).status().message());
  };
  Put(In("file"), "old");
  EXPECT_THAT(why(folder_.path()), HasSubstr(": could not be written: Is a directory"));
  EXPECT_THAT(why(In("none/")), HasSubstr("none/: could not be written: Is a directory"));
  EXPECT_THAT(why(In("file/a")), HasSubstr("Not a directory"));
  EXPECT_THAT(why(In("none/a")), HasSubstr("/none: No such file or directory"));
  EXPECT_THAT(why(""), HasSubstr("the name is empty"));
  fs::create_symlink("loop", In("loop"));
  EXPECT_THAT(why(In("loop")), HasSubstr("symbolic links"));
  EXPECT_THAT(Names(), ElementsAre("file", "loop"));
  const auto file = OutputFile::Open(In(std::string(250, 'x')));  // there is no room for the name beside it
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_THAT(std::string((*file)->Begin().message()), HasSubstr("File name too long"));
  if (geteuid() == 0) return;  // may write everywhere
  ASSERT_EQ(chmod(In("file").c_str(), 0400), 0);
  EXPECT_THAT(why(In("file")), HasSubstr("Permission denied"));
}

}  // namespace
}  // namespace metp
