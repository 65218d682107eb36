// Runs the suites on the device that the runtime numbers 0; says so and exits with 77 where there is none.

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstdio>

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) {
    std::printf("skipped: no CUDA device (%s)\n", cudaGetErrorString(error));
    return 77;
  }
  return RUN_ALL_TESTS();
}
