#pragma once

// How this worker's GPU does between and under its ranks: whether its memory has come back, and what the driver says has
// gone wrong on it. One thread calls; the device itself may be asked from others meanwhile.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "worker/daemon/gpu.h"

namespace metp {

class GpuWatch {
 public:
  /// `slack_bytes`: used memory beyond what was used when it was taken that still counts as free.
  GpuWatch(TakenGpu taken, int64_t slack_bytes);

  const Gpu& gpu() const { return taken_.gpu; }
  /// Called with the number of each critical error when it is taken from the driver; before the first rank.
  void OnXid(std::function<void(int)> told) { told_ = std::move(told); }

  /// OK: what ranks have held is free again. ResourceExhausted: how much is not, and who holds it; other errors: the
  /// device does not say.
  absl::Status MemoryIsFree() const;

  /// A rank starts: what went wrong earlier is not its own.
  void RankStarts();
  /// "its GPU reported Xid 79 (the GPU has fallen off the bus: restart the machine)", what has gone wrong since
  /// RankStarts; empty: nothing that is known. Waits up to `wait` for the driver to say something.
  std::string TakeErrors(std::chrono::milliseconds wait);

 private:
  std::vector<int> TakeXids(std::chrono::milliseconds wait);

  TakenGpu taken_;
  int64_t slack_bytes_;
  std::unique_ptr<XidEvents> xids_;  // null: this device does not tell
  std::function<void(int)> told_ = [](int) {};
  std::optional<int64_t> memory_errors_ = 0;  // when the rank started; nullopt: it does not tell
};

}  // namespace metp
