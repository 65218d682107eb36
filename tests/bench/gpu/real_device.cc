// Linked with CUDA's own libraries.

#include "tests/bench/gpu/device.h"

namespace metp::gpu_bench {

Emulation TakeEmulation() { return {}; }

absl::StatusOr<std::unique_ptr<cuda::FusedAttention>> OpenLibrary(cudaStream_t stream) {
  return cuda::OpenCudnn(stream);
}

}  // namespace metp::gpu_bench
