#pragma once

// Wall and steady time behind one interface, so that leases, deadlines and time stamps can be tested with a
// clock that moves only when told (tests/support/fake_clock.h). Thread-safe.

#include <chrono>

namespace metp {

class Clock {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::steady_clock::duration;

  virtual ~Clock() = default;
  /// Never goes back; for intervals and deadlines. Means nothing to another process.
  virtual Time Now() const = 0;
  /// For people and files only.
  virtual std::chrono::system_clock::time_point Wall() const = 0;
};

class RealClock : public Clock {
 public:
  Time Now() const override { return std::chrono::steady_clock::now(); }
  std::chrono::system_clock::time_point Wall() const override { return std::chrono::system_clock::now(); }
};

}  // namespace metp
