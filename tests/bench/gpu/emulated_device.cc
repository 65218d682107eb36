// Linked with tests/cuda_emulation.

#include "tests/bench/gpu/device.h"
#include "tests/cuda_emulation/engine.h"
#include "tests/worker/backend/library_under_test.h"

namespace metp::gpu_bench {

Emulation TakeEmulation() { return {true, emulation::TakeFaults()}; }

absl::StatusOr<std::unique_ptr<cuda::FusedAttention>> OpenLibrary(cudaStream_t stream) {
  return testing::OpenLibraryUnderTest(stream);
}

}  // namespace metp::gpu_bench
