#pragma once

// AdamW in host memory, for the CPU backend's own weights and for optimizer state that another device keeps on the
// host.

#include <cstdint>

#include "worker/backend/backend.h"

namespace metp::cpu {

/// One update of n weights (Backend::AdamW), spread over `threads` threads. `narrow`, unless null, also gets the new
/// weights as bf16, rounded to nearest, ties to even.
void AdamWOnHost(int threads, const AdamWStep& step, int64_t n, const float* g, float* m, float* v, float* w,
                 uint16_t* narrow);

}  // namespace metp::cpu
