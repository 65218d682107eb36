// Linked with CUDA's own libraries.

#include "tests/bench/gpu/device.h"

namespace metp::gpu_bench {

Emulation TakeEmulation() { return {}; }

}  // namespace metp::gpu_bench
