#pragma once

// A disk in memory on which SQLite runs, and which loses power: after a given number of operations nothing works any
// more, and of what was written since the last sync of a file any part, or none, is there afterwards.

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace metp {

class CrashDisk {
 public:
  /// Registers itself as the SQLite file system `name`, until it goes.
  explicit CrashDisk(const std::string& name);
  ~CrashDisk();
  CrashDisk(const CrashDisk&) = delete;
  CrashDisk& operator=(const CrashDisk&) = delete;

  /// The disk fails with its `operations`-th write, truncation, sync or removal from now on; 0: never.
  void FailAfter(int64_t operations) {
    left_ = operations;
    failing_ = false;
  }
  bool failed() const { return failing_; }
  /// What there is when power comes back.
  void PowerOn(uint32_t seed);

  struct Write {
    int64_t offset;
    std::string bytes;  // empty: the file is cut off at `offset`
  };
  struct File {
    std::string live, synced;
    std::vector<Write> since;  // the last sync
  };

  // For the file system's functions.
  bool Operation();  // false: the disk has failed
  std::map<std::string, File>& files() { return files_; }

 private:
  struct Vfs;
  std::map<std::string, File> files_;
  int64_t left_ = 0;
  bool failing_ = false;
  Vfs* const vfs_;
};

}  // namespace metp
