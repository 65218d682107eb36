#pragma once

// The key-value rendezvous of running attempts: ranks leave their addresses under keys, others wait for them.
// Values are small (addresses, communicator ids); tensors never pass here. Owned by the controller, used on
// its thread only.

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace metp {

class RendezvousTable {
 public:
  struct Answer {
    int rank = 0;
    std::string key, value;
  };

  /// Keeps `value` and returns the answers to those who waited for it. Putting the same value again changes
  /// nothing; AlreadyExists when another value stands there. InvalidArgument above 64 KiB.
  absl::Status Put(const std::string& attempt, const std::string& key, const std::string& value,
                   std::vector<Answer>& answers);
  /// Answers at once if the key is there, otherwise when it is put.
  void Get(const std::string& attempt, int rank, const std::string& key, std::vector<Answer>& answers);
  /// Forgets all about an attempt that has ended.
  void Erase(const std::string& attempt) { attempts_.erase(attempt); }
  size_t attempts() const { return attempts_.size(); }

 private:
  struct Attempt {
    std::map<std::string, std::string> values;
    std::map<std::string, std::vector<int>> waiting;  // ranks, by key
  };
  std::map<std::string, Attempt> attempts_;
};

}  // namespace metp
