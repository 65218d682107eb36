#pragma once

// `metp-rank run`: a whole job on one machine without any service, its ranks as threads or as processes.

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "metp/v1/profile.pb.h"
#include "metp/v1/rank.pb.h"
#include "proto/support/mutex.h"
#include "worker/rank/run_rank.h"

namespace metp {

/// Somebody's wish that a run ends after its step. Thread-safe.
class LeaveWish {
 public:
  void Ask() METP_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    asked_ = true;
    if (listener_) listener_();
  }
  bool asked() const METP_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return asked_;
  }
  /// Called at once if it was asked already; null: no more.
  void Listen(std::function<void()> listener) METP_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    listener_ = std::move(listener);
    if (asked_ && listener_) listener_();
  }

 private:
  mutable Mutex mutex_;
  bool asked_ METP_GUARDED_BY(mutex_) = false;
  std::function<void()> listener_ METP_GUARDED_BY(mutex_);
};

struct RunRequest {
  v1::JobSpec job;  // normalized and valid
  v1::Plan plan;
  int threads = 1;  // of each rank
  LeaveWish* leave = nullptr;
};

/// Everything that the ranks of one run reported.
struct RunRecord {
  std::vector<std::vector<v1::StepReport>> steps;  // [rank][step]
  std::vector<double> sgemm_flops_per_second;      // [rank], all at once
  std::string simulated_on;                        // a profile's name; empty: everything was measured
  bool interrupted = false;                        // it was asked to leave before its last step
};

/// Ranks as threads of this process, on the CPU or all on the first GPU. `on_step` sees rank 0's reports. The error is the
/// one that the others followed from.
absl::StatusOr<RunRecord> RunLocal(const RunRequest& request, const OnStep& on_step);

/// Ranks as processes of `program` (this binary): on loopback over Gloo, or rank n on the n-th GPU over NCCL.
absl::StatusOr<RunRecord> RunProcesses(const RunRequest& request, const std::string& program,
                                       const OnStep& on_step);

/// One step of every rank on a simulated device, without losses; the rate is the profile's peak.
absl::StatusOr<RunRecord> RunSim(const RunRequest& request, const v1::DeviceProfile& profile);

/// The command: parses its arguments, runs, prints. Returns the exit code: 0 done, 1 the run failed, 2 usage
/// or job file, 143 it left on SIGTERM.
int RunCommand(int argc, char** argv);

/// Of several ranks' errors the one to show: a rank's own failure rather than a neighbour's that followed
/// from it (a broken ring is Unavailable or Cancelled). OK if none failed.
absl::Status FirstCause(const std::vector<absl::Status>& statuses);

}  // namespace metp
