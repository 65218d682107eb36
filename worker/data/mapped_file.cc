// open, fstat, mmap.

#include "worker/data/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace metp {
namespace {

absl::Status Unreadable(const std::string& path, int error) {
  const std::string message = absl::StrCat(path, ": cannot be read: ", std::strerror(error));
  return error == ENOENT || error == ENOTDIR ? absl::NotFoundError(message)
                                             : absl::InvalidArgumentError(message);
}

}  // namespace

absl::StatusOr<MappedFile> MappedFile::Open(const std::string& path) {
  // O_NONBLOCK: opening a FIFO without a writer returns at once.
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (file < 0) {
    return Unreadable(path, errno);
  }
  struct stat info {};
  if (fstat(file, &info) != 0) {
    const int error = errno;
    close(file);
    return Unreadable(path, error);
  }
  if (!S_ISREG(info.st_mode)) {
    close(file);
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": found ", S_ISDIR(info.st_mode) ? "a folder" : "a device, pipe or socket",
                     ", expected a regular file"));
  }
  if (info.st_size == 0) {
    close(file);
    return MappedFile(path, nullptr, 0);  // nothing can be mapped
  }
  void* data = mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ, MAP_SHARED, file, 0);
  const int error = errno;
  close(file);
  if (data == MAP_FAILED) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": cannot be mapped: ", std::strerror(error),
        error == ENOMEM ? "; with very many files, join them or raise the kernel's vm.max_map_count" : ""));
  }
  return MappedFile(path, static_cast<const uint8_t*>(data), info.st_size);
}

MappedFile::MappedFile(std::string path, const uint8_t* data, int64_t size)
    : path_(std::move(path)), data_(data), size_(size) {}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) {
    munmap(const_cast<uint8_t*>(data_), static_cast<size_t>(size_));
  }
}

void MappedFile::ForgetPages() const {
  if (data_ != nullptr) {
    madvise(const_cast<uint8_t*>(data_), static_cast<size_t>(size_), MADV_DONTNEED);
  }
}

}  // namespace metp
