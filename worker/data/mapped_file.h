#pragma once

// A regular file mapped into memory, read-only. Owned by the TokenStream; its bytes may be read from any
// thread. A file that another program shortens while it is mapped ends this process when the lost part is
// read (SIGBUS).

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace metp {

class MappedFile {
 public:
  /// NotFound when there is no such file; InvalidArgument when it is no regular file or cannot be read or
  /// mapped. Never blocks on a FIFO. Messages start with the path.
  static absl::StatusOr<MappedFile> Open(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  const std::string& path() const { return path_; }
  const uint8_t* data() const { return data_; }  // page aligned; null for an empty file
  int64_t size() const { return size_; }         // bytes

  /// Gives the pages that were read back to the page cache: this process no longer counts them.
  void ForgetPages() const;

 private:
  MappedFile(std::string path, const uint8_t* data, int64_t size);

  std::string path_;
  const uint8_t* data_ = nullptr;
  int64_t size_ = 0;
};

}  // namespace metp
