// Runs the suites on the device that the runtime numbers 0, those of rings over NCCL on as many as there are; says so and
// exits with 77 where there is none.

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstdio>

#include "tests/worker/backend/library_under_test.h"
#include "tests/worker/comm/device_ring.h"

namespace metp {

int PrepareDevices() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

absl::StatusOr<std::unique_ptr<cuda::FusedAttention>> testing::OpenLibraryUnderTest(cudaStream_t stream) {
  return cuda::OpenCudnn(stream);
}

}  // namespace metp

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) {
    std::printf("skipped: no CUDA device (%s)\n", cudaGetErrorString(error));
    return 77;
  }
  // Ranks are threads here, and NCCL would read the neighbour's memory itself, which the backend's pool does not let it.
  // Ranks of a job are processes.
  setenv("NCCL_P2P_DIRECT_DISABLE", "1", 0);
  return RUN_ALL_TESTS();
}
