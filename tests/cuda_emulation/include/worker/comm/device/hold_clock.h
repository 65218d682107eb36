#pragma once

// Twin of worker/comm/device/hold_clock.h: the emulated device's clock is the host's.

#include <cuda_runtime.h>

#include <chrono>
#include <thread>

namespace metp::cuda {

inline unsigned long long HoldClock() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

inline void HoldPause() { std::this_thread::sleep_for(std::chrono::microseconds(5)); }

}  // namespace metp::cuda
