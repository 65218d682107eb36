#pragma once

// The device's clock, and a pause between two looks at it. (PTX ISA, "Special Registers: %globaltimer".)

#include <cuda_runtime.h>

namespace metp::cuda {

/// Nanoseconds since some moment, the same for all of the device.
__device__ inline unsigned long long HoldClock() {
  unsigned long long now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

__device__ inline void HoldPause() { __nanosleep(500); }

}  // namespace metp::cuda
