// Linked with tests/cuda_emulation.

#include "tests/bench/gpu/device.h"
#include "tests/cuda_emulation/engine.h"

namespace metp::gpu_bench {

Emulation TakeEmulation() { return {true, emulation::TakeFaults()}; }

}  // namespace metp::gpu_bench
