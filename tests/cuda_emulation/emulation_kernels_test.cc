// How kernels run: indices, shuffles, votes, barriers, shared memory, bf16; what launches are refused.

#include <cuda_bf16.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "tests/cuda_emulation/emulation_test.h"

namespace metp::emulation {
namespace {

using testing::Each;
using testing::ElementsAre;

__global__ void Indices(int* y) {
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  const unsigned at = block * blockDim.x * blockDim.y * blockDim.z + thread;
  y[at] = static_cast<int>(at);
}

TEST_F(CudaEmulation, RunsEveryThreadOfEveryBlock) {
  const Buffer<int> y(2 * 3 * 4 * 5 * 3 * 2);
  ASSERT_EQ(Start({.grid = {2, 3, 4}, .block = {5, 3, 2}}, Indices, y.data()), cudaSuccess);
  const std::vector<int> values = y.Read();
  for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i], static_cast<int>(i));
}

enum class Kind { kTo, kXor, kDown, kUp };

__global__ void Shuffles(Kind kind, int by, int width, double* y) {
  const double mine = threadIdx.x;
  double got = 0;
  if (kind == Kind::kTo) got = __shfl_sync(cuda::kAllLanes, mine, by, width);
  if (kind == Kind::kXor) got = __shfl_xor_sync(cuda::kAllLanes, mine, by, width);
  if (kind == Kind::kDown) got = __shfl_down_sync(cuda::kAllLanes, mine, static_cast<unsigned>(by), width);
  if (kind == Kind::kUp) got = __shfl_up_sync(cuda::kAllLanes, mine, static_cast<unsigned>(by), width);
  y[threadIdx.x] = got;
}

/// What lane gets, by the Programming Guide's words.
int Source(Kind kind, int lane, int by, int width) {
  const int first = lane / width * width, in_segment = lane % width;
  if (kind == Kind::kTo) return first + by % width;
  if (kind == Kind::kXor) return (lane ^ by) < first + width ? lane ^ by : lane;
  if (kind == Kind::kDown) return in_segment + by < width ? lane + by : lane;
  return in_segment - by >= 0 ? lane - by : lane;
}

TEST_F(CudaEmulation, Shuffles) {
  const Buffer<double> y(32);
  for (const Kind kind : {Kind::kTo, Kind::kXor, Kind::kDown, Kind::kUp}) {
    for (const int width : {4, 32}) {
      for (const int by : {0, 1, 3, 16, 31}) {
        Start({}, Shuffles, kind, by, width, y.data());
        const std::vector<double> got = y.Read();
        for (int lane = 0; lane < 32; ++lane) {
          EXPECT_EQ(got[static_cast<size_t>(lane)], Source(kind, lane, by, width))
              << static_cast<int>(kind) << " " << by << " " << width << " " << lane;
        }
      }
    }
  }
}

__global__ void Votes(unsigned* y) {
  const unsigned odd = __ballot_sync(cuda::kAllLanes, threadIdx.x % 2);
  unsigned half = 0;
  if (threadIdx.x < 16) {
    half = __ballot_sync(0xffffu, threadIdx.x > 7);
  } else {
    half = __ballot_sync(0xffff0000u, threadIdx.x > 23);
  }
  y[threadIdx.x] = odd ^ half;
  const bool any = __any_sync(cuda::kAllLanes, threadIdx.x == 9), none = __any_sync(cuda::kAllLanes, 0);
  const bool all = __all_sync(cuda::kAllLanes, 2), not_all = __all_sync(cuda::kAllLanes, threadIdx.x);
  y[32 + threadIdx.x] = any && !none && all && !not_all;
}

TEST_F(CudaEmulation, VotesAmongTheLanesThatAreNamed) {
  const Buffer<unsigned> y(64);
  Start({}, Votes, y.data());
  const std::vector<unsigned> got = y.Read();
  for (size_t lane = 0; lane < 32; ++lane) {
    EXPECT_EQ(got[lane], 0xaaaaaaaau ^ (lane < 16 ? 0xff00u : 0xff000000u));
    EXPECT_EQ(got[32 + lane], 1u);
  }
}

__global__ void Sums(const float* x, int n, float* sum) {
  float mine = 0;
  for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(blockDim.x)) mine += x[i];
  float* const room = Shared<float>();
  mine = cuda::WarpSum(mine);
  if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = mine;
  __syncthreads();
  const float all = cuda::WarpSum(threadIdx.x < blockDim.x / 32 ? room[threadIdx.x] : 0.0f);
  if (threadIdx.x == 0) *sum = all;
}

TEST_F(CudaEmulation, SumsOverABlock) {
  const Buffer<float> x(std::vector<float>(1000, 0.5f)), sum(1);
  for (const unsigned threads : {32u, 96u, 1024u}) {
    Start({.block = threads, .shared_bytes = 128}, Sums, x.data(), 1000, sum.data());
    EXPECT_THAT(sum.Read(), ElementsAre(500.0f));
  }
}

__global__ void BarrierVotes(int* y) {
  if (threadIdx.x >= 90) return;  // who has ended is not waited for
  const int some = __syncthreads_or(threadIdx.x == 3), none = __syncthreads_or(0);
  const int all = __syncthreads_and(1), most = __syncthreads_and(threadIdx.x != 80);
  const int count = __syncthreads_count(threadIdx.x % 3 == 0);
  y[threadIdx.x] = (some != 0) + 10 * (none != 0) + 100 * (all != 0) + 1000 * (most != 0) + 10000 * count;
}

TEST_F(CudaEmulation, VotesAtABarrier) {
  const Buffer<int> y(90);
  Start({.block = 100}, BarrierVotes, y.data());
  EXPECT_THAT(y.Read(), Each(300101));
}

__global__ void ExitedLanes(int* y) {
  if (threadIdx.x % 2 == 0) return;
  __syncwarp();
  y[threadIdx.x / 2] = 1;
}

TEST_F(CudaEmulation, SynchronisesAWarpOfWhichLanesHaveEnded) {
  const Buffer<int> y(20);
  Start({.block = 40}, ExitedLanes, y.data());
  EXPECT_THAT(y.Read(), Each(1));
}

__global__ void Bits(int* y) {
  y[0] = __popc(0xf0f0u);
  y[1] = __ffs(0x50);
  y[2] = __ffs(0);
  y[3] = __float_as_int(1.0f);
  double sine = 0, cosine = 0;
  sincos(1.0, &sine, &cosine);
  y[4] = sine == std::sin(1.0) && cosine == std::cos(1.0);
  y[5] = rsqrtf(4.0f) == 0.5f && __expf(0.0f) == 1.0f && exp2f(3.0f) == 8.0f;
}

TEST_F(CudaEmulation, HasTheDevicesFunctions) {
  const Buffer<int> y(6);
  Start({.block = 1}, Bits, y.data());
  EXPECT_THAT(y.Read(), ElementsAre(8, 5, 0, 0x3f800000, 1, 1));
}

// Round to nearest, ties to even, on the bits: add half of the last kept bit, less one unless that bit is set.
TEST_F(CudaEmulation, RoundsToBf16) {
  uint32_t bits = 12345;
  for (int i = 0; i < 100'000; ++i) {
    bits = bits * 1664525 + 1013904223;
    const float x = std::bit_cast<float>(bits);
    const unsigned short rounded = __bfloat16_as_ushort(__float2bfloat16(x));
    if (std::isnan(x)) {
      EXPECT_EQ(rounded, 0x7fff);
      continue;
    }
    const uint32_t low = bits & 0xffff, high = bits >> 16;
    EXPECT_EQ(rounded, high + (low > 0x8000 || (low == 0x8000 && (high & 1) != 0) ? 1 : 0));
  }
  const auto round = [](uint32_t of) {
    return __bfloat16_as_ushort(__float2bfloat16(std::bit_cast<float>(of)));
  };
  EXPECT_EQ(round(0x3f808000), 0x3f80);  // ties
  EXPECT_EQ(round(0x3f818000), 0x3f82);
  EXPECT_EQ(round(0x7f7fffff), 0x7f80);  // the largest float is infinite in bf16
  EXPECT_EQ(round(0x00000001), 0x0000);
  EXPECT_EQ(__bfloat162float(__ushort_as_bfloat16(0xc040)), -3.0f);
  const __nv_bfloat162 pair = __floats2bfloat162_rn(1.0f, 2.0f);
  EXPECT_EQ(__low2float(pair), 1.0f);
  EXPECT_EQ(__high2float(pair), 2.0f);
}

__global__ void Nothing() {}

TEST_F(CudaEmulation, RefusesLaunchesThatADeviceRefuses) {
  EXPECT_EQ(Start({.block = 1024}, Nothing), cudaSuccess);
  EXPECT_EQ(Start({.block = 1025}, Nothing), cudaErrorInvalidConfiguration);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidConfiguration);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(Start({.block = {1, 1, 65}}, Nothing), cudaErrorInvalidConfiguration);
  EXPECT_EQ(Start({.grid = 0}, Nothing), cudaErrorInvalidConfiguration);
  EXPECT_EQ(Start({.grid = {1, 65536, 1}}, Nothing), cudaErrorInvalidConfiguration);
  EXPECT_EQ(Start({.shared_bytes = 48 * 1024}, Nothing), cudaSuccess);
  EXPECT_EQ(Start({.shared_bytes = 100 * 1024}, Nothing), cudaErrorInvalidValue);
  const auto ask = [](int bytes) {
    return cudaFuncSetAttribute(reinterpret_cast<const void*>(&Nothing),
                                cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  };
  EXPECT_EQ(ask(164 * 1024), cudaErrorInvalidValue);
  EXPECT_EQ(ask(163 * 1024), cudaSuccess);
  EXPECT_EQ(Start({.shared_bytes = 163 * 1024}, Nothing), cudaSuccess);
  EXPECT_EQ(ask(48 * 1024), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  cudaGetLastError();
}

}  // namespace
}  // namespace metp::emulation
