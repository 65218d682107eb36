#pragma once

// One trace of a job under way: what its ranks send of their timelines, until enough steps are whole, on its
// way to the client that asked. The client's call owns it; the controller fills it as long as it is there.
// Thread-safe.

#include <deque>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "metp/v1/job_service.pb.h"
#include "proto/support/common_steps.h"
#include "proto/support/mutex.h"
#include "server/change_hub.h"

namespace metp {

class TraceSession {
 public:
  /// Of the job `id`, `steps` consecutive steps of all ranks are wanted. Tells `changes`, under key().
  TraceSession(ChangeHub& changes, const std::string& id, int steps)
      : changes_(changes), key_(KeyOf(id)), steps_(steps) {}
  static std::string KeyOf(const std::string& id) { return "trace of " + id; }

  int steps() const { return steps_; }

  // ---- the controller ----

  /// The ranks have been told to trace so many steps.
  void Ordered(int ranks, int steps) METP_EXCLUDES(mutex_);
  enum class Progress {
    kGoesOn,
    kOrderMore,  // all ranks have sent what they were told to, and had too few steps in common
    kDone,
  };
  Progress Add(v1::TracePart part) METP_EXCLUDES(mutex_);
  /// No more comes. The first one counts.
  void End(const absl::Status& status) METP_EXCLUDES(mutex_);

  // ---- the client's call ----

  enum class Taken { kChunk, kNothingYet, kEnd };
  /// Parts that have come, about `max_bytes` at most; or how it has ended.
  Taken Take(size_t max_bytes, v1::TraceChunk& chunk, absl::Status& status) METP_EXCLUDES(mutex_);

 private:
  bool SentAll() const METP_REQUIRES(mutex_);

  ChangeHub& changes_;
  const std::string key_;
  const int steps_;
  Mutex mutex_;
  std::optional<CommonSteps> whole_ METP_GUARDED_BY(mutex_);
  int ranks_ METP_GUARDED_BY(mutex_) = 0;
  // Whole steps of each rank, when it has sent all that it was told to.
  int expected_ METP_GUARDED_BY(mutex_) = 0;
  std::deque<v1::TracePart> parts_ METP_GUARDED_BY(mutex_);
  size_t bytes_ METP_GUARDED_BY(mutex_) = 0;  // of these
  std::optional<absl::Status> end_ METP_GUARDED_BY(mutex_);
};

}  // namespace metp
