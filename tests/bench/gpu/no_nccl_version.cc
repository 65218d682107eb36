// In a build without NCCL.

#include "tests/bench/gpu/device.h"

namespace metp::gpu_bench {

std::string NcclVersion() { return "none"; }

}  // namespace metp::gpu_bench
