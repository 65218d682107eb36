#pragma once

// A folder of its own for one test, removed with everything in it when the test ends.

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace metp::test {

class TempFolder {
 public:
  TempFolder() {
    std::string path = ::testing::TempDir() + "metp-XXXXXX";
    EXPECT_NE(mkdtemp(path.data()), nullptr);
    path_ = std::filesystem::canonical(path);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::filesystem::path& path() const { return path_; }

  /// Writes a file, with the folders on the way to it; its whole path.
  std::string Write(const std::string& name, std::string_view content) const {
    const std::filesystem::path file = path_ / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream stream(file, std::ios::binary);
    stream.write(content.data(), static_cast<std::streamsize>(content.size()));
    EXPECT_TRUE(stream.flush().good()) << file;
    return file.string();
  }

 private:
  std::filesystem::path path_;
};

}  // namespace metp::test
