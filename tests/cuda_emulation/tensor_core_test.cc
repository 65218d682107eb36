// The emulated tensor core: its fragments against a plain product, and copies that are not there before they were waited for.

#include "worker/backend/cuda/tensor_core.h"

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <vector>

namespace metp::emulation {
namespace {

/// Runs one warp, which has `shared_bytes` of shared memory.
template <typename... Parameters, typename... Arguments>
void RunWarp(void (*kernel)(Parameters...), size_t shared_bytes, Arguments... arguments) {
  cudaLaunchConfig_t config = {};
  config.gridDim = {1, 1, 1};
  config.blockDim = {32, 1, 1};
  config.dynamicSmemBytes = shared_bytes;
  ASSERT_EQ(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

/// Device memory, zero at first (this file is not instrumented: what its kernels write counts as unwritten).
template <typename T>
class Buffer {
 public:
  explicit Buffer(size_t count) : count_(count) {
    cudaMalloc(&data_, count * sizeof(T));
    cudaMemset(data_, 0, count * sizeof(T));
  }
  explicit Buffer(const std::vector<T>& values) : Buffer(values.size()) {
    cudaMemcpy(data_, values.data(), count_ * sizeof(T), cudaMemcpyHostToDevice);
  }
  ~Buffer() { cudaFree(data_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  T* data() const { return static_cast<T*>(data_); }
  std::vector<T> Values() const {
    std::vector<T> values(count_);
    cudaMemcpy(values.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost);
    return values;
  }

 private:
  const size_t count_;
  void* data_ = nullptr;
};

using cuda::CopyAsync16;
using cuda::CopyAsyncCommit;
using cuda::CopyAsyncWait;
using bf16 = __nv_bfloat16;

__device__ uint32_t Pair(const bf16* low, const bf16* high) { return cuda::PackBf16(*low, *high); }

/// d [16, 8] += a [16, 16] b [16, 8], all by rows.
__global__ void Multiply(const bf16* a, const bf16* b, float* d) {
  const int g = static_cast<int>(threadIdx.x) / 4, t = static_cast<int>(threadIdx.x) % 4;
  uint32_t fragment[4];
  for (int i = 0; i < 4; ++i) {
    const bf16* const from = a + (g + 8 * (i % 2)) * 16 + 2 * t + 8 * (i / 2);
    fragment[i] = Pair(from, from + 1);
  }
  const uint32_t b0 = Pair(b + 2 * t * 8 + g, b + (2 * t + 1) * 8 + g);
  const uint32_t b1 = Pair(b + (2 * t + 8) * 8 + g, b + (2 * t + 9) * 8 + g);
  float sums[4];
  for (int i = 0; i < 4; ++i) sums[i] = d[(g + 8 * (i / 2)) * 8 + 2 * t + i % 2];
  cuda::MmaBf16(sums, fragment, b0, b1);
  for (int i = 0; i < 4; ++i) d[(g + 8 * (i / 2)) * 8 + 2 * t + i % 2] = sums[i];
}

TEST(CudaTensorCore, MultipliesFragments) {
  std::vector<bf16> a(256), b(128);
  std::vector<float> d(128), expected(128);
  for (size_t i = 0; i < 256; ++i) a[i] = bf16(static_cast<float>(i * 37 % 101) / 8 - 5);
  for (size_t i = 0; i < 128; ++i) b[i] = bf16(static_cast<float>(i * 53 % 97) / 4 - 12);
  for (size_t i = 0; i < 128; ++i) d[i] = expected[i] = static_cast<float>(i);
  for (size_t row = 0; row < 16; ++row) {
    for (size_t col = 0; col < 8; ++col) {  // exact: multiples of 1/32 below 2^24 / 32
      for (size_t k = 0; k < 16; ++k)
        expected[row * 8 + col] += float{a[row * 16 + k]} * float{b[k * 8 + col]};
    }
  }
  const Buffer<bf16> device_a(a), device_b(b);
  const Buffer<float> device_d(d);
  RunWarp(Multiply, 0, device_a.data(), device_b.data(), device_d.data());
  EXPECT_EQ(device_d.Values(), expected);
}

/// Four matrices of 8 x 8, one behind the other; to [32, 4] registers, to_transposed too.
__global__ void LoadBothWays(const bf16* matrices, uint32_t* to, uint32_t* to_transposed) {
  uint32_t r[4];
  const int lane = static_cast<int>(threadIdx.x);
  cuda::LoadMatrices(r, matrices + lane * 8);
  for (int i = 0; i < 4; ++i) to[lane * 4 + i] = r[i];
  cuda::LoadMatricesTransposed(r, matrices + lane * 8);
  for (int i = 0; i < 4; ++i) to_transposed[lane * 4 + i] = r[i];
}

TEST(CudaTensorCore, LoadsMatricesBothWays) {
  std::vector<bf16> matrices(256);
  for (size_t i = 0; i < 256; ++i) matrices[i] = bf16(static_cast<float>(i));
  const auto bits = [&](size_t matrix, size_t row, size_t col) {
    return static_cast<uint32_t>(__bfloat16_as_ushort(matrices[matrix * 64 + row * 8 + col]));
  };
  const Buffer<bf16> from(matrices);
  const Buffer<uint32_t> to(128), to_transposed(128);
  RunWarp(LoadBothWays, 0, from.data(), to.data(), to_transposed.data());
  const std::vector<uint32_t> plain = to.Values(), transposed = to_transposed.Values();
  for (size_t lane = 0; lane < 32; ++lane) {
    const size_t g = lane / 4, t = lane % 4;
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(plain[lane * 4 + i], bits(i, g, 2 * t) | bits(i, g, 2 * t + 1) << 16);
      EXPECT_EQ(transposed[lane * 4 + i], bits(i, 2 * t, g) | bits(i, 2 * t + 1, g) << 16);
    }
  }
}

/// Two groups of one copy each, the second invalid; what the place of each holds [3, 2] before waiting, when one group may
/// still be on its way, and at the end. `room`: 32 bytes per lane.
__global__ void CopyLate(const uint32_t* from, unsigned char* room, uint32_t* seen) {
  auto* const first = reinterpret_cast<uint32_t*>(room + threadIdx.x * 32);
  uint32_t* const second = first + 4;
  uint32_t* const mine = seen + threadIdx.x * 6;
  CopyAsync16(first, from + threadIdx.x * 4, true);
  CopyAsyncCommit();
  CopyAsync16(second, from, false);
  CopyAsyncCommit();
  mine[0] = first[0], mine[1] = second[0];
  CopyAsyncWait<1>();
  mine[2] = first[0], mine[3] = second[0];
  CopyAsyncWait<0>();
  mine[4] = first[0], mine[5] = second[0];
}

TEST(CudaTensorCore, CopiesArriveWhenTheyAreWaitedFor) {
  std::vector<uint32_t> values(128);
  for (size_t i = 0; i < 128; ++i) values[i] = static_cast<uint32_t>(i + 1000);
  const Buffer<uint32_t> from(values), seen(32 * 6);
  const Buffer<unsigned char> room(32 * 32);
  RunWarp(CopyLate, 0, from.data(), room.data(), seen.data());
  const std::vector<uint32_t> all = seen.Values();
  for (size_t lane = 0; lane < 32; ++lane) {
    const std::vector<uint32_t> mine(all.begin() + static_cast<long>(lane * 6),
                                     all.begin() + static_cast<long>(lane * 6 + 6));
    const uint32_t value = values[lane * 4], none = ~0u;
    EXPECT_EQ(mine, (std::vector<uint32_t>{none, none, value, none, value, 0}));
  }
}

TEST(CudaTensorCore, PacksToNearestEven) {
  EXPECT_EQ(cuda::PackBf16(1.0f, -2.0f), 0xc0003f80u);
  EXPECT_EQ(cuda::PackBf16(std::bit_cast<float>(0x3f808000u), std::bit_cast<float>(0x3f818000u)),
            0x3f823f80u);
}

TEST(CudaTensorCoreDeathTest, WantsRowsAligned) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  alignas(16) unsigned char room[32];
  EXPECT_DEATH(CopyAsync16(room + 2, room, true), "not aligned");
}

}  // namespace
}  // namespace metp::emulation
