#pragma once

// The account of a device's hops: which were posted, the points at which each began and ended, who waited for which,
// and what that cost. Plain data under its owner's lock; the records are read back once the points have passed.
//
// A transfer ends on both its ends at the same time and begins when the later one comes. So of the durations that its
// two ranks see for a hop the shorter is what the transfer took, and what the longer one has beyond that was spent
// waiting for the other rank:
//   communication = the smallest of the durations of this rank and of those neighbours it exchanges something with
//   stood         = how much of [ready, done] the compute stream stood through between `before` and `after` of its wait
//   exposed       = min(stood, communication),  skew = stood - exposed

#include <chrono>
#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "worker/comm/communicator.h"

namespace metp::cuda {

class HopLog {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  struct Hop {
    HopId id = 0;
    int64_t sent_bytes = 0;
    bool sends = false, receives = false;
    std::optional<Event> ready, done;  // once started; once enqueued
    bool passed = false;               // seen done
    std::optional<TimePoint> since;    // when it was first seen to be ready and not done
    bool awaited = false;
    double duration = 0;       // from ready to done, as this rank sees it
    double communication = 0;  // of the duration, with both sides there
  };
  /// Durations of one hop on the previous and the next rank.
  struct Neighbours {
    double previous = 0, next = 0;
  };

  Hop& Post(const Exchange& exchange);
  HopId last() const { return last_; }
  /// Null: it was awaited and its record taken.
  Hop* Find(HopId id);
  /// The first hop that is not known to have passed, if it was posted.
  Hop* InHand();
  bool all_awaited() const;

  void Await(Hop& hop, Event before, Event after);
  /// The latest point at which the compute stream has done waiting; null where there is nothing to read back.
  const Event* LastWait() const { return waits_.empty() ? nullptr : &waits_.back().after; }

  /// Own durations of the hops up to the last one awaited that were not measured yet, in order.
  std::vector<double> Measure(const Backend& backend);
  /// Records of the awaited hops. `neighbours`: for the hops of Measure; empty: nobody else takes part.
  std::vector<HopRecord> Take(const Backend& backend, const std::vector<Neighbours>& neighbours);

 private:
  /// The compute stream waited for `hop`, and thereby for all of first .. hop.
  struct Wait {
    HopId hop = 0, first = 0;
    Event before, after;
  };
  HopRecord RecordOf(const Backend& backend, const Wait& wait);

  std::deque<Hop> hops_;  // ids are consecutive
  std::vector<Wait> waits_;
  HopId last_ = 0, last_awaited_ = 0, last_measured_ = 0, in_hand_ = 1;
};

}  // namespace metp::cuda
