// Faults: for each kind a kernel that commits it, which is found and named, and its correct twin, which is not.

#include "tests/cuda_emulation/emulation_test.h"

#include <algorithm>

namespace metp::emulation {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

__global__ void Double(const float* x, int n, float* y) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) y[i] = 2 * x[i];
}

__global__ void Put(float* y, int n, float value) {
  for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(blockDim.x)) y[i] = value;
}

// --- Out of bounds ---------------------------------------------------------------------------------------------------

TEST_F(CudaEmulationFaults, FindsAReadPastTheEnd) {
  const Buffer<float> x(std::vector<float>(250, 1.0f)), y(300);
  ASSERT_EQ(Start({.grid = 8}, Double, x.data(), 250, y.data()), cudaSuccess);
  EXPECT_THAT(Faults(), IsEmpty());
  ASSERT_EQ(Start({.grid = 8}, Double, x.data(), 254, y.data()), cudaSuccess);
  EXPECT_THAT(Faults(),
              ElementsAre("out of bounds: kernel Double, block (7,0,0) thread (26,0,0), read of 4 bytes at 0 "
                          "past the end of an allocation of 1000 bytes"));
}

TEST_F(CudaEmulationFaults, FindsAWriteBeforeTheBeginning) {
  const Buffer<float> y(4);
  Start({}, Put, y.data() - 2, 1, 1.0f);
  EXPECT_THAT(Faults(), ElementsAre(HasSubstr("write of 4 bytes at 8 before an allocation of 16 bytes")));
}

TEST_F(CudaEmulationFaults, FindsAnAccessThatIsPartlyPastTheEnd) {
  const Buffer<unsigned char> bytes(std::vector<unsigned char>(6, 1));
  const Buffer<float> y(2);
  Start({}, Double, reinterpret_cast<const float*>(bytes.data()), 2, y.data());
  EXPECT_THAT(
      Faults(),
      ElementsAre(HasSubstr("at 4 of an allocation of 6 bytes; byte 2 of it lies at 0 past the end")));
}

TEST_F(CudaEmulationFaults, FindsAnAccessOfFreedMemory) {
  const Stream stream;
  float* y = nullptr;
  cudaMallocAsync(&y, 400, stream);
  Start({.stream = stream}, Put, y, 100, 1.0f);
  cudaFreeAsync(y, stream);
  cudaStreamSynchronize(stream);
  EXPECT_THAT(Faults(), IsEmpty());
  Start({.stream = stream}, Put, y, 100, 1.0f);
  EXPECT_THAT(Faults(), ElementsAre(AllOf(StartsWith("out of bounds: kernel Put"),
                                          HasSubstr("at 0 of a freed allocation of 400"))));
}

TEST_F(CudaEmulationFaults, FindsHostMemoryInAKernel) {
  std::vector<float> x(32, 1.0f);
  const Buffer<float> y(32);
  Start({}, Double, x.data(), 32, y.data());
  EXPECT_THAT(Faults(), ElementsAre(HasSubstr("read of 4 bytes that are not the device's")));
}

TEST_F(CudaEmulation, LetsAKernelReadPinnedMemory) {
  float* x = nullptr;
  ASSERT_EQ(cudaMallocHost(&x, 128), cudaSuccess);
  for (int i = 0; i < 32; ++i) x[i] = 3;
  const Buffer<float> y(32);
  Start({}, Double, x, 32, y.data());
  EXPECT_EQ(y.Read(), std::vector<float>(32, 6.0f));
  cudaFreeHost(x);
}

__global__ void WriteShared(int n) { Shared<int>()[threadIdx.x % static_cast<unsigned>(n)] = 1; }

TEST_F(CudaEmulationFaults, FindsSharedMemoryBeyondTheLaunch) {
  Start({.shared_bytes = 32 * 4}, WriteShared, 32);
  EXPECT_THAT(Faults(), IsEmpty());
  Start({.shared_bytes = 30 * 4}, WriteShared, 32);
  EXPECT_THAT(Faults(),
              ElementsAre(HasSubstr(
                  "thread (30,0,0), write of 4 bytes at 0 past the end of the block's 120 bytes of shared")));
}

TEST_F(CudaEmulationFaults, FindsACopyPastTheEnd) {
  const Buffer<float> x(10);
  const std::vector<float> host(11, 1.0f);
  cudaMemcpyAsync(x.data(), host.data(), 44, cudaMemcpyHostToDevice);
  EXPECT_THAT(Faults(), ElementsAre(AllOf(StartsWith("out of bounds: cudaMemcpyAsync, write of 44 bytes"),
                                          HasSubstr("byte 40"))));
}

TEST_F(CudaEmulationFaults, FindsTheHostInDeviceMemory) {
  const Buffer<float> x(std::vector<float>(1, 1.0f));
  *static_cast<volatile float*>(x.data());
  EXPECT_THAT(Faults(), ElementsAre(StartsWith("out of bounds: host code, read of 4 bytes at 0")));
}

// --- Uninitialised ---------------------------------------------------------------------------------------------------

TEST_F(CudaEmulationFaults, FindsAReadOfWhatNothingWrote) {
  const Buffer<float> x(32), y(32);
  cudaMemsetAsync(x.data(), 0, 31 * 4);
  Start({}, Double, x.data(), 31, y.data());
  EXPECT_THAT(Faults(), IsEmpty());
  Start({}, Double, x.data(), 32, y.data());
  EXPECT_THAT(
      Faults(),
      ElementsAre("uninitialised: kernel Double, block (0,0,0) thread (31,0,0), read of 4 bytes at 124 "
                  "of an allocation of 128 bytes, which nothing wrote"));
}

TEST_F(CudaEmulationFaults, FindsACopyOfWhatNothingWrote) {
  const Buffer<float> x(3);
  float host[3];
  cudaMemcpy(host, x.data(), 12, cudaMemcpyDeviceToHost);
  EXPECT_THAT(Faults(), ElementsAre(StartsWith("uninitialised: cudaMemcpy, read of 12 bytes")));
}

TEST_F(CudaEmulationFaults, TakesMemoryThatIsGivenOutAgainForNew) {
  const Stream stream;
  const Buffer<float> y(64);
  std::vector<float*> seen;
  bool again = false;
  for (int i = 0; i < 20; ++i) {
    float* x = nullptr;
    cudaMallocAsync(&x, 256, stream);
    again |= std::find(seen.begin(), seen.end(), x) != seen.end();
    seen.push_back(x);
    Start({.stream = stream}, Double, x, 1, y.data());  // not written this time
    EXPECT_THAT(Faults(), ElementsAre(StartsWith("uninitialised: kernel Double")));
    Start({.stream = stream}, Put, x, 64, 1.0f);
    cudaFreeAsync(x, stream);
    cudaStreamSynchronize(stream);
  }
  EXPECT_TRUE(again);
}

__global__ void ReadNeighbour(bool all_write, int* y) {
  int* const shared = Shared<int>();
  if (all_write || threadIdx.x != 5) shared[threadIdx.x] = static_cast<int>(threadIdx.x);
  __syncthreads();
  y[threadIdx.x] = shared[threadIdx.x ^ 1];
}

TEST_F(CudaEmulationFaults, FindsAReadOfSharedMemoryThatTheBlockDidNotWrite) {
  const Buffer<int> y(64);
  Start({.block = 64, .shared_bytes = 256}, ReadNeighbour, true, y.data());
  EXPECT_THAT(Faults(), IsEmpty());
  Start({.block = 64, .shared_bytes = 256}, ReadNeighbour, false, y.data());
  EXPECT_THAT(Faults(), ElementsAre(AllOf(
                            StartsWith("uninitialised: kernel ReadNeighbour, block (0,0,0) thread (4,0,0)"),
                            HasSubstr("at 20 of the block's 256 bytes of shared memory"))));
  EXPECT_EQ(y.Read()[4], -1);  // new shared memory is full of ones
}

// --- Misaligned ------------------------------------------------------------------------------------------------------

__global__ void Load8(const unsigned char* x, int2* y) { *y = *reinterpret_cast<const int2*>(x); }

TEST_F(CudaEmulationFaults, FindsAnAccessThatIsNotAligned) {
  const Buffer<unsigned char> x(std::vector<unsigned char>(32, 1));
  const Buffer<int2> y(1);
  Start({.block = 1}, Load8, x.data() + 8, y.data());
  EXPECT_THAT(Faults(), IsEmpty());
  Start({.block = 1}, Load8, x.data() + 4, y.data());
  EXPECT_THAT(Faults(), ElementsAre(StartsWith("misaligned: kernel Load8")));
}

// --- Deadlock --------------------------------------------------------------------------------------------------------

__global__ void HalfWaits(bool divergent) {
  if (divergent && threadIdx.x >= 32) {
    __shfl_sync(~0u, 1, 0);
    if (threadIdx.x == 40)
      __syncwarp(0x100);
    else
      __syncwarp(~0u);
  }
  __syncthreads();
}

TEST_F(CudaEmulation, FindsThreadsThatWaitForEachOther) {
  Start({.block = 64}, HalfWaits, false);
  EXPECT_THAT(Faults(), IsEmpty());
  Start({.block = 64}, HalfWaits, true);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
  EXPECT_THAT(TakeFaults(),
              ElementsAre(AllOf(StartsWith("deadlock: kernel HalfWaits, block (0,0,0):"),
                                HasSubstr("31 threads, the first (32,0,0), wait in __syncwarp"))));
  EXPECT_EQ(Start({.block = 64}, HalfWaits, false), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchFailure);
  Configure({});
  EXPECT_EQ(Start({.block = 64}, HalfWaits, false), cudaSuccess);
}

__global__ void ShuffleAfterExit(unsigned mask) {
  if (threadIdx.x == 7) return;
  __shfl_xor_sync(mask, 1, 1);
}

TEST_F(CudaEmulation, FindsAShuffleWithALaneThatEnded) {
  Start({}, ShuffleAfterExit, 0xffffffffu);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
  EXPECT_THAT(TakeFaults(), ElementsAre(StartsWith("deadlock: kernel ShuffleAfterExit")));
  Configure({});
}

TEST_F(CudaEmulation, FindsAShuffleFromALaneThatTakesNoPart) {
  Start({}, ShuffleAfterExit, 0xffffff7fu);  // lane 6 takes from 7
  EXPECT_THAT(Faults(), ElementsAre(AllOf(StartsWith("uninitialised: kernel ShuffleAfterExit"),
                                          HasSubstr("from lane 7"))));
}

}  // namespace
}  // namespace metp::emulation
