#pragma once

// What must hold of jobs and workers at every moment, as code. Tests call Check after every act; it is not
// run in production.

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "metp/v1/status.pb.h"

namespace metp {

class Invariants {
 public:
  /// Internal with the first one that is broken:
  ///   1 ids, sequences and request ids are unique
  ///   2 a job that waits or was never started has no rank; one that has ended has no rank that is not gone, is not
  ///     stopping, and says when it ended
  ///   3 a job that starts or runs has as many ranks as its plan, each on a worker, and one at least is not gone
  ///   4 a running job that is not stopping has all its ranks started
  ///   5 no worker holds two ranks that are not gone
  ///   6 the attempt is the job's last one
  ///   7 the step is one that the job has
  ///   8 what had ended at an earlier call has not changed its state, reason or attempts
  absl::Status Check(const std::vector<v1::JobRecord>& jobs);

 private:
  std::map<std::string, v1::JobRecord> ended_;
};

}  // namespace metp
