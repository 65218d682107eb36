#pragma once

// One rank from start to end: the body that a thread of `metp-rank run --comm local` and a
// `metp-rank serve` process have in common.

#include <functional>
#include <limits>
#include <string>

#include "absl/status/statusor.h"
#include "metp/v1/rank.pb.h"
#include "proto/support/mutex.h"
#include "worker/comm/communicator.h"
#include "worker/data/dataset.h"
#include "worker/rank/rank_device.h"
#include "worker/rank/step_tracer.h"
#include "worker/telemetry/whereabouts.h"

namespace metp {

/// Rings meet once a step, and one may take its step much longer than another: a peer that is gone is noticed by its
/// connection, so that this need not be short.
inline constexpr CommunicatorOptions kAcrossRings{std::chrono::hours(24)};

/// The rings that one rank is part of.
struct RankRings {
  Communicator& ring;              // its own, of plan.degree() ranks
  Communicator* across = nullptr;  // the same place of every data-parallel ring; null: there is one ring
};

/// Called with each step's report, on the rank's compute thread.
using OnStep = std::function<void(const v1::StepReport&)>;

/// The folder of a checkpoint that is not complete yet: whoever ends the rank from outside removes it, unless it is being
/// completed. Thread-safe.
class Unfinished {
 public:
  void Set(const std::string& folder) METP_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    folder_ = folder;
  }
  /// From now on it is completed and not to be removed. False: it is being removed.
  bool BeginCommit() METP_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    folder_.clear();
    return !taken_;
  }
  /// The folder to remove, now that the rank ends; empty: none.
  std::string Take() METP_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    taken_ = true;
    return folder_;
  }

 private:
  Mutex mutex_;
  std::string folder_ METP_GUARDED_BY(mutex_);
  bool taken_ METP_GUARDED_BY(mutex_) = false;
};

/// What binds a rank to those who watch over it. The functions run on its compute thread.
struct RankHooks {
  OnStep on_step;
  std::function<void(const v1::CheckpointNote&)> on_checkpoint = {};
  /// The first step begins.
  std::function<void()> on_training = {};
  /// True: this rank is to leave after the step in hand, and all others with it, with a checkpoint.
  std::function<bool()> asked_to_leave = {};
  /// Steps whose timelines are wanted, and where these go.
  TraceOrders* trace_orders = nullptr;
  StepTracer::Send on_trace = {};
  Whereabouts* where = nullptr;
  /// Kept up to date: what this rank must not leave behind when it is ended from outside.
  Unfinished* unfinished = nullptr;
};

/// The device that a rank's start order asks for.
absl::StatusOr<std::unique_ptr<RankDevice>> OpenRankDevice(const v1::RankStart& start);

/// Trains all steps, or until a rank is asked to leave. Returns what the rank reports at the end, its code 0; otherwise the
/// error, after its rings were ended with it so that the neighbours do not wait.
absl::StatusOr<v1::RankResult> RunRank(const v1::RankStart& start, RankDevice& device, const RankRings& rings,
                                       const Dataset& dataset, const RankHooks& hooks);

/// Threads for each of `ranks` ranks on this machine: cores / ranks, at least 1.
int DefaultThreads(int ranks);

}  // namespace metp
