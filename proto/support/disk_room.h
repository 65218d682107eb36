#pragma once

// Room on a file system.

#include <sys/statvfs.h>

#include <filesystem>
#include <optional>
#include <string>

namespace metp {

struct DiskRoom {
  double free_bytes = 0, size_bytes = 0;
};

/// Of the file system where `path` is or would be made, to this user; none: it does not say. May block.
inline std::optional<DiskRoom> RoomOf(const std::string& path) {
  std::error_code error;
  std::filesystem::path folder = std::filesystem::absolute(path, error);
  while (!std::filesystem::exists(folder, error) && folder.has_relative_path()) folder = folder.parent_path();
  struct statvfs disk = {};
  if (folder.empty() || statvfs(folder.c_str(), &disk) != 0) return std::nullopt;
  const double block = static_cast<double>(disk.f_frsize);
  return DiskRoom{block * static_cast<double>(disk.f_bavail), block * static_cast<double>(disk.f_blocks)};
}

}  // namespace metp
