#pragma once

// A temporary folder that a test fills with files.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "tests/support/temp_folder.h"

namespace metp::test {

class FileFolder {
 public:
  std::filesystem::path path() const { return folder_.path(); }

  /// Writes a file, with the folders on the way to it; its whole path.
  std::string Write(const std::string& name, std::string_view content) const {
    const std::filesystem::path file = path() / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream stream(file, std::ios::binary);
    stream.write(content.data(), static_cast<std::streamsize>(content.size()));
    EXPECT_TRUE(stream.flush().good()) << file;
    return file.string();
  }

 private:
  testing::TempFolder folder_;
};

}  // namespace metp::test
