#pragma once

// Notices attempts that stand still. How long a step may take is learned from the steps before it. Not thread-safe; no clock
// of its own.

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "proto/support/clock.h"
#include "server/config.h"

namespace metp {

class HangWatch {
 public:
  explicit HangWatch(const CoordinatorConfig& config) : config_(config) {}

  /// Until its first step an attempt may take start_timeout.
  void Begin(const std::string& attempt, Clock::Time now);
  /// A rank has done a step that no rank of the attempt had done: hang_factor times the longest of the last steps from now,
  /// hang_floor at least.
  void Step(const std::string& attempt, int step, double step_seconds, Clock::Time now);
  /// It waits for a disk: start_timeout from now, until the next step.
  void Waits(const std::string& attempt, Clock::Time now);
  /// Nothing was heard of it for a reason that lies elsewhere: its time begins anew.
  void Excuse(const std::string& attempt, Clock::Time now);
  void ExcuseAll(Clock::Time now);
  /// A rank has done a step since then.
  bool SteppedSince(const std::string& attempt, Clock::Time time) const;
  void Forget(const std::string& attempt) { attempts_.erase(attempt); }

  struct Hang {
    std::string attempt, sentence;
  };
  /// Those whose time is over; each is told once.
  std::vector<Hang> Take(Clock::Time now);
  std::optional<Clock::Time> NextDeadline() const;

 private:
  struct Attempt {
    Clock::Time since;
    Clock::Duration allowed{};
    int step = 0;
    Clock::Time stepped{};
    std::deque<double> seconds = {};  // of the last steps
  };
  Clock::Duration Learned(const Attempt& attempt) const;

  const CoordinatorConfig& config_;
  std::map<std::string, Attempt> attempts_;
};

}  // namespace metp
