// Which files a source stands for.

#include "worker/data/sources.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/proto/support/file_folder.h"
#include "worker/data/mapped_file.h"

namespace metp {
namespace {

using test::FileFolder;
using ::testing::ElementsAre;

std::vector<std::string> Listed(const std::vector<std::string>& sources) {
  absl::StatusOr<std::vector<std::string>> files = ListFiles(sources);
  EXPECT_TRUE(files.ok()) << files.status();
  return files.value_or(std::vector<std::string>());
}

TEST(ListFiles, SortsAFolderByPathComponentByComponent) {
  const FileFolder folder;
  const std::string root = folder.path();
  for (const std::string name : {"b", "a/z", "a-b", "a/c/d", "B"}) {
    folder.Write(name, "x");
  }
  EXPECT_THAT(Listed({root}),
              ElementsAre(root + "/B", root + "/a/c/d", root + "/a/z", root + "/a-b", root + "/b"));
}

TEST(ListFiles, KeepsTheOrderOfTheSourcesAndWhatIsNamedTwice) {
  const FileFolder folder;
  const std::string b = folder.Write("b", "x"), a = folder.Write("d/a", "x");
  EXPECT_THAT(Listed({b, folder.path() / "d", b}), ElementsAre(b, a, b));
}

TEST(ListFiles, CountsAFileOnceHoweverManyLinksLeadToIt) {
  const FileFolder folder;
  const std::string root = folder.path();
  folder.Write("m", "x");
  std::filesystem::create_symlink("m", root + "/a");
  std::filesystem::create_symlink("a", root + "/z");
  std::filesystem::create_hard_link(root + "/m", root + "/n");
  EXPECT_THAT(Listed({root}), ElementsAre(root + "/a"));
}

TEST(ListFiles, FollowsLinksToFoldersOnceAndSurvivesLoops) {
  const FileFolder folder;
  const std::string root = folder.path();
  folder.Write("in/one/f", "x");
  folder.Write("out/g", "x");
  std::filesystem::create_directory_symlink(root + "/in", root + "/in/one/up");
  std::filesystem::create_directory_symlink("self", root + "/in/self");
  std::filesystem::create_directory_symlink(root + "/out", root + "/in/far");
  std::filesystem::create_directory_symlink(root + "/out", root + "/in/way");
  EXPECT_THAT(Listed({root + "/in"}), ElementsAre(root + "/in/far/g", root + "/in/one/f"));
}

TEST(ListFiles, SkipsInAFolderWhatIsNoFile) {
  const FileFolder folder;
  const std::string root = folder.path();
  folder.Write("f", "x");
  ASSERT_EQ(mkfifo((root + "/pipe").c_str(), 0600), 0);
  std::filesystem::create_symlink("nowhere", root + "/dangling");
  EXPECT_THAT(Listed({root}), ElementsAre(root + "/f"));
}

TEST(ListFiles, RefusesASourceThatIsNoFile) {
  const FileFolder folder;
  const std::string pipe = folder.path() / "pipe", loop = folder.path() / "loop";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  std::filesystem::create_symlink("loop", loop);
  EXPECT_EQ(ListFiles({pipe}).status(),
            absl::InvalidArgumentError(pipe + ": found a device, pipe or socket, expected a file or folder"));
  EXPECT_EQ(ListFiles({"/dev/null"}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ListFiles({loop}).status(),
            absl::InvalidArgumentError(loop + ": cannot be read: Too many levels of symbolic links"));
}

TEST(ListFiles, RefusesAnEmptyFolder) {
  const FileFolder folder;
  std::filesystem::create_directories(folder.path() / "a/b");
  EXPECT_EQ(ListFiles({folder.path()}).status(),
            absl::InvalidArgumentError(folder.path().string() +
                                       ": found a folder without files, expected at least one"));
}

TEST(MappedFile, RefusesPipesAndDevicesWithoutWaiting) {
  const FileFolder folder;
  const std::string pipe = folder.path() / "x.bin";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(MappedFile::Open(pipe).status(),
            absl::InvalidArgumentError(pipe + ": found a device, pipe or socket, expected a regular file"));
  EXPECT_EQ(MappedFile::Open("/dev/zero").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(MappedFile, NamesAFileThatMayNotBeRead) {
  const FileFolder folder;
  const std::string path = folder.Write("secret", "x");
  const bool root = geteuid() == 0;  // may read everything: becomes nobody for this test
  std::filesystem::permissions(folder.path(), std::filesystem::perms::all);
  std::filesystem::permissions(path, std::filesystem::perms::none);
  if (root) {
    ASSERT_EQ(seteuid(65534), 0);
  }
  const absl::Status status = MappedFile::Open(path).status();
  if (root) {
    ASSERT_EQ(seteuid(0), 0);
  }
  EXPECT_EQ(status, absl::InvalidArgumentError(path + ": cannot be read: Permission denied"));
}

TEST(MappedFile, MapsAnEmptyFile) {
  const FileFolder folder;
  const absl::StatusOr<MappedFile> file = MappedFile::Open(folder.Write("empty", ""));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->size(), 0);
}

}  // namespace
}  // namespace metp
