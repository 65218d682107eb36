#include "client/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"

namespace metp {
namespace {

constexpr int kMostLinks = 40;  // as many as Linux follows

/// Where a path ends that leads to nothing yet: the last of its links may point to what is not there.
std::filesystem::path EndOfLinks(std::filesystem::path path) {
  std::error_code error;
  for (int i = 0; i < kMostLinks && std::filesystem::is_symlink(path, error); ++i)
    path = path.parent_path() / std::filesystem::read_symlink(path, error);
  return path;
}

}  // namespace

absl::Status OutputFile::Failed(const std::string& why) const {
  return absl::DataLossError(absl::StrCat(path_, ": could not be written: ", why));
}

absl::StatusOr<std::unique_ptr<OutputFile>> OutputFile::Open(const std::string& path) {
  std::unique_ptr<OutputFile> file(new OutputFile(path));
  if (path.empty()) return file->Failed("the name is empty");
  struct stat there = {};
  if (path.back() == '/') return file->Failed(std::strerror(EISDIR));
  if (stat(path.c_str(), &there) == 0) {
    if (S_ISDIR(there.st_mode)) return file->Failed(std::strerror(EISDIR));
    if (!S_ISREG(there.st_mode)) {
      file->fd_ = open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY);
      if (file->fd_ < 0) return file->Failed(std::strerror(errno));
      return file;
    }
    if (access(path.c_str(), W_OK) != 0) return file->Failed(std::strerror(errno));
    std::error_code error;
    file->target_ = std::filesystem::canonical(path, error);
    if (error) return file->Failed(error.message());
  } else if (errno == ENOENT) {
    file->target_ = EndOfLinks(std::filesystem::absolute(path));
  } else {
    return file->Failed(std::strerror(errno));
  }
  const std::string folder = std::filesystem::path(file->target_).parent_path();
  if (access(folder.c_str(), W_OK) != 0)
    return file->Failed(absl::StrCat(folder, ": ", std::strerror(errno)));
  return file;
}

absl::Status OutputFile::Begin() {
  if (target_.empty()) return absl::OkStatus();
  const std::string beside = absl::StrCat(target_, ".", getpid(), ".part");
  const auto create = [&] { return open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666); };
  fd_ = create();
  // Left by one that was killed, and had our number.
  if (fd_ < 0 && errno == EEXIST && unlink(beside.c_str()) == 0) fd_ = create();
  if (fd_ < 0) return Failed(std::strerror(errno));
  beside_ = beside;
  return absl::OkStatus();
}

absl::Status OutputFile::Write(const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t n = write(fd_, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Failed(std::strerror(errno));
    done += static_cast<size_t>(n);
  }
  if (close(std::exchange(fd_, -1)) != 0) return Failed(std::strerror(errno));
  if (target_.empty()) return absl::OkStatus();
  if (std::rename(beside_.c_str(), target_.c_str()) != 0) return Failed(std::strerror(errno));
  beside_.clear();
  return absl::OkStatus();
}

OutputFile::~OutputFile() {
  if (fd_ >= 0) close(fd_);
  if (begun()) unlink(beside_.c_str());
}

}  // namespace metp
