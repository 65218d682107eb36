// Walks folders in sorted order, knowing files by device and inode.

#include "worker/data/sources.h"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/status_macros.h"

namespace metp {
namespace {

using Identity = std::pair<dev_t, ino_t>;

absl::Status Wrong(const std::string& path, int error) {
  if (error == ENOENT || error == ENOTDIR) {
    return absl::NotFoundError(absl::StrCat(path, ": no such file or folder"));
  }
  return absl::InvalidArgumentError(absl::StrCat(path, ": cannot be read: ", std::strerror(error), ""));
}

absl::StatusOr<std::vector<std::string>> SortedNames(const std::string& folder) {
  const std::unique_ptr<DIR, int (*)(DIR*)> open(opendir(folder.c_str()), closedir);
  if (open == nullptr) {
    return Wrong(folder, errno);
  }
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = readdir(open.get())) {
    if (std::strcmp(entry->d_name, ".") != 0 && std::strcmp(entry->d_name, "..") != 0) {
      names.emplace_back(entry->d_name);
    }
  }
  if (errno != 0) {
    return Wrong(folder, errno);
  }
  std::sort(names.begin(), names.end());
  return names;
}

/// Appends the files below `folder` that are not in `seen`. As deep as the folders are: each real one is
/// entered once.
absl::Status Walk(const std::string& folder, std::set<Identity>& seen, std::vector<std::string>& files) {
  METP_ASSIGN_OR_RETURN(const std::vector<std::string> names, SortedNames(folder));
  for (const std::string& name : names) {
    const std::string path = absl::StrCat(folder, folder.ends_with('/') ? "" : "/", name);
    struct stat info {};
    if (stat(path.c_str(), &info) != 0) {
      if (errno == ENOENT || errno == ELOOP) {
        continue;  // a link that leads nowhere
      }
      return Wrong(path, errno);
    }
    const bool is_folder = S_ISDIR(info.st_mode);
    if ((!is_folder && !S_ISREG(info.st_mode)) || !seen.emplace(info.st_dev, info.st_ino).second) {
      continue;
    }
    if (is_folder) {
      METP_RETURN_IF_ERROR(Walk(path, seen, files));
    } else {
      files.push_back(path);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ListFiles(const std::vector<std::string>& sources) {
  std::vector<std::string> files;
  for (const std::string& source : sources) {
    struct stat info {};
    if (stat(source.c_str(), &info) != 0) {
      return Wrong(source, errno);
    }
    if (S_ISREG(info.st_mode)) {
      files.push_back(source);
    } else if (S_ISDIR(info.st_mode)) {
      const size_t before = files.size();
      std::set<Identity> seen = {{info.st_dev, info.st_ino}};
      METP_RETURN_IF_ERROR(Walk(source, seen, files));
      if (files.size() == before) {
        return absl::InvalidArgumentError(
            absl::StrCat(source, ": found a folder without files, expected at least one"));
      }
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat(source, ": found a device, pipe or socket, expected a file or folder"));
    }
  }
  return files;
}

}  // namespace metp
