#pragma once

// A file that is there whole or not at all: written beside its place and renamed. What is no regular file (a pipe,
// a device) is written as it is, and symbolic links are followed, not replaced. Whether it can be written is known
// before there is anything to write.

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace metp {

class OutputFile {
 public:
  /// DataLoss, of all here: why it cannot be written. Opens what is no regular file; of a named pipe, waits for
  /// its reader.
  static absl::StatusOr<std::unique_ptr<OutputFile>> Open(const std::string& path);
  /// Removes what Begin has made, unless it was written.
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  /// Makes the file beside it: whoever calls this must not be ended by a signal until this object is gone.
  absl::Status Begin();
  /// After Begin, once.
  absl::Status Write(const std::string& text);
  /// There is a file beside it.
  bool begun() const { return !beside_.empty(); }

 private:
  explicit OutputFile(std::string path) : path_(std::move(path)) {}
  absl::Status Failed(const std::string& why) const;

  const std::string path_;  // as it was given
  std::string target_;      // where it ends; empty: what is no regular file
  std::string beside_;
  int fd_ = -1;
};

}  // namespace metp
