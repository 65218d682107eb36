#include "worker/checkpoint/file_system.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "proto/support/status_macros.h"
#include "worker/data/mapped_file.h"

namespace metp {

namespace {

absl::Status Error(const std::string& path, int error) {
  const std::string what = absl::StrCat(path, ": ", std::strerror(error));
  if (error == EEXIST) return absl::AlreadyExistsError(what);
  if (error == ENOENT) return absl::NotFoundError(what);
  if (error == ENOSPC || error == EDQUOT) return absl::ResourceExhaustedError(what);
  return absl::UnavailableError(what);
}

class PosixWriter final : public FileWriter {
 public:
  PosixWriter(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  ~PosixWriter() override { close(fd_); }
  absl::Status Append(std::string_view bytes) override {
    while (!bytes.empty()) {
      const ssize_t n = write(fd_, bytes.data(), bytes.size());
      if (n < 0 && errno != EINTR) return Error(path_, errno);
      if (n > 0) bytes.remove_prefix(static_cast<size_t>(n));
    }
    return absl::OkStatus();
  }
  absl::Status Sync() override { return fsync(fd_) == 0 ? absl::OkStatus() : Error(path_, errno); }

 private:
  const int fd_;
  const std::string path_;
};

class MappedBytes final : public FileBytes {
 public:
  explicit MappedBytes(MappedFile file) : file_(std::move(file)) {}
  std::string_view bytes() const override {
    return {reinterpret_cast<const char*>(file_.data()), static_cast<size_t>(file_.size())};
  }

 private:
  const MappedFile file_;
};

class PosixFileSystem final : public FileSystem {
 public:
  absl::Status MakeFolder(const std::string& path) override {
    std::error_code error;
    std::filesystem::create_directories(path, error);
    return error ? Error(path, error.value()) : absl::OkStatus();
  }
  absl::StatusOr<std::unique_ptr<FileWriter>> Create(const std::string& path) override {
    const int fd = open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644);
    if (fd < 0) return Error(path, errno);
    return std::make_unique<PosixWriter>(fd, path);
  }
  absl::StatusOr<std::unique_ptr<FileBytes>> Read(const std::string& path) override {
    absl::StatusOr<MappedFile> file = MappedFile::Open(path);
    if (file.ok()) return std::make_unique<MappedBytes>(*std::move(file));
    if (absl::IsNotFound(file.status())) return file.status();
    return absl::UnavailableError(file.status().message());  // here and now: says nothing of the file
  }
  absl::StatusOr<std::vector<std::string>> List(const std::string& path) override {
    std::vector<std::string> names;
    std::error_code error;
    for (std::filesystem::directory_iterator at(path, error), end; !error && at != end; at.increment(error))
      names.push_back(at->path().filename().string());
    if (error) return Error(path, error.value());
    std::sort(names.begin(), names.end());
    return names;
  }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    std::error_code error;
    if (std::filesystem::exists(to, error)) return Error(to, EEXIST);
    return rename(from.c_str(), to.c_str()) == 0 ? absl::OkStatus() : Error(to, errno);
  }
  absl::Status SyncFolder(const std::string& path) override {
    const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return Error(path, errno);
    const int result = fsync(fd), error = errno;
    close(fd);
    return result == 0 ? absl::OkStatus() : Error(path, error);
  }
  absl::Status Remove(const std::string& path) override {
    std::error_code error;
    std::filesystem::remove_all(path, error);
    return error ? Error(path, error.value()) : absl::OkStatus();
  }
};

}  // namespace

FileSystem& RealFileSystem() {
  static PosixFileSystem system;
  return system;
}

}  // namespace metp
