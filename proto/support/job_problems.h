#pragma once

// What is wrong with a job: collected over the whole file, each problem with its place, so that a user
// corrects all of them at once. Plain values, local to one reading of one job.

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace metp {

/// Where a key was given: a line of the file, counting from 1, or the whole text of an override
/// ("train.steps=10"). Neither: the key stands nowhere (a default, or a job that did not come from a file).
struct Place {
  int line = 0;
  std::string override_text;
};

/// Places by key ("train.steps"; "" is the job itself).
using Places = std::map<std::string, Place>;

/// The place of `key`, or of the innermost section around it that has one.
Place FindPlace(const Places& places, std::string key);

struct Problem {
  Place place;
  std::string key;      // empty: the file as a whole
  std::string message;  // "found -1, expected an integer of at least 1"
};

class Problems {
 public:
  void Add(Place place, absl::string_view key, absl::string_view message);
  bool empty() const { return problems_.empty(); }
  size_t size() const { return problems_.size(); }
  /// Gives every problem without a place that of its key.
  void Locate(const Places& places);
  /// OK when there are none. Otherwise InvalidArgument, in the order of the file, overrides last, one a line:
  /// "FILE:LINE: KEY: MESSAGE" or "--set OVERRIDE: KEY: MESSAGE"; without a `file`, "KEY: MESSAGE".
  absl::Status ToStatus(const std::string& file) const;

 private:
  std::vector<Problem> problems_;
};

/// `text` fit for a message: control characters escaped, cut where it is long.
std::string Shown(absl::string_view text);

}  // namespace metp
