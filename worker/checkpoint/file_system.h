#pragma once

// What checkpoints need of a file system, so that a test can put one in its place that stops at any moment or loses what
// was not synchronised. Thread-safe.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace metp {

/// A file being written from its beginning.
class FileWriter {
 public:
  virtual ~FileWriter() = default;
  virtual absl::Status Append(std::string_view bytes) = 0;
  /// What was appended survives a crash.
  virtual absl::Status Sync() = 0;
};

/// A file's bytes, as they were when it was opened.
class FileBytes {
 public:
  virtual ~FileBytes() = default;
  virtual std::string_view bytes() const = 0;
};

/// Errors name the path: NotFound, ResourceExhausted (the disk is full), Unavailable (anything else).
class FileSystem {
 public:
  virtual ~FileSystem() = default;
  /// With its parents; fine if it is there.
  virtual absl::Status MakeFolder(const std::string& path) = 0;
  /// Replaces a file of that name.
  virtual absl::StatusOr<std::unique_ptr<FileWriter>> Create(const std::string& path) = 0;
  virtual absl::StatusOr<std::unique_ptr<FileBytes>> Read(const std::string& path) = 0;
  /// Names in a folder, sorted.
  virtual absl::StatusOr<std::vector<std::string>> List(const std::string& path) = 0;
  /// All or nothing. AlreadyExists: `to` is there.
  virtual absl::Status Rename(const std::string& from, const std::string& to) = 0;
  /// The names in a folder survive a crash.
  virtual absl::Status SyncFolder(const std::string& path) = 0;
  /// A file, or a folder with everything in it; fine if it is not there.
  virtual absl::Status Remove(const std::string& path) = 0;
};

/// The machine's own.
FileSystem& RealFileSystem();

}  // namespace metp
