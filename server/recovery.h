#pragma once

// What follows when an attempt has ended before its last step. Pure.

#include <string>

#include "metp/v1/status.pb.h"
#include "proto/support/clock.h"
#include "server/config.h"
#include "server/rank_end.h"

namespace metp {

struct Verdict {
  bool again = false;       // another attempt follows; otherwise the job has failed
  bool fruitless = false;   // it uses up one of max_restarts
  Clock::Duration wait{0};  // before it
  std::string sentence;     // for people: what happened and what follows
};

/// An interruption is always followed by another attempt, at once. A fault is unless it is final, or max_restarts in a row
/// brought no checkpoint newer than the one they began from; it waits restart_backoff, doubled with every fruitless
/// restart up to restart_backoff_limit.
Verdict AfterAttempt(const v1::JobRecord& record, const RankEnd& cause, const CoordinatorConfig& config);

}  // namespace metp
