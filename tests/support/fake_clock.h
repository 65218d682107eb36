#pragma once

// A clock that moves only when told. Thread-safe.

#include <chrono>

#include "proto/support/clock.h"
#include "proto/support/mutex.h"

namespace metp {

class FakeClock : public Clock {
 public:
  Time Now() const override {
    MutexLock lock(mutex_);
    return Time(passed_);
  }
  std::chrono::system_clock::time_point Wall() const override {
    MutexLock lock(mutex_);
    return std::chrono::system_clock::time_point(std::chrono::hours(500000)) +
           std::chrono::duration_cast<std::chrono::system_clock::duration>(passed_);
  }
  void Advance(Duration by) {
    MutexLock lock(mutex_);
    passed_ += by;
  }

 private:
  mutable Mutex mutex_;
  Duration passed_ METP_GUARDED_BY(mutex_) = std::chrono::hours(1);
};

}  // namespace metp
