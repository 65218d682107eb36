#pragma once

// Files in memory that lose power: after a given number of changes nothing works any more, and of what was not synchronised
// any part, or nothing, is there afterwards. A rename that was not followed by a synchronisation of its folder may not have
// happened.

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "worker/checkpoint/file_system.h"

namespace metp {

class LyingFiles final : public FileSystem {
 public:
  /// The disk fails with its `operations`-th change from now on; 0: never.
  void FailAfter(int64_t operations) {
    left_ = operations;
    failed_ = false;
  }
  /// Every change is refused with this, and does not happen; OK: none is.
  void Refuse(absl::Status why) { refuse_ = std::move(why); }
  bool failed() const { return failed_; }
  void PowerOn(uint32_t seed);

  absl::Status MakeFolder(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<FileWriter>> Create(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<FileBytes>> Read(const std::string& path) override;
  absl::StatusOr<std::vector<std::string>> List(const std::string& path) override;
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status SyncFolder(const std::string& path) override;
  absl::Status Remove(const std::string& path) override;

  /// A file's content, to be spoiled; null if it is not there.
  std::string* Content(const std::string& path);
  std::vector<std::string> Paths() const;

  absl::Status Change();
  struct File {
    std::string bytes;
    size_t synced = 0;  // of them from the beginning on
  };

 private:
  static bool Inside(const std::string& path, const std::string& folder) {
    return path.rfind(folder + "/", 0) == 0;
  }
  std::map<std::string, File> files_;
  std::map<std::string, bool> folders_;
  std::vector<std::pair<std::string, std::string>> renames_;  // since their folder was synchronised
  int64_t left_ = 0;
  bool failed_ = false;
  absl::Status refuse_;
};

}  // namespace metp
