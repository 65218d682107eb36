#pragma once

// What kernels share: 16-byte accesses, conversions, sums over a warp, shared memory. Arithmetic is fp32
// whatever the operands' type.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace metp::cuda {

using bf16 = __nv_bfloat16;

inline constexpr int kWarp = 32;
inline constexpr unsigned kAllLanes = 0xffffffffu;

__device__ inline float ToFloat(float x) { return x; }
__device__ inline float ToFloat(bf16 x) { return __bfloat162float(x); }
template <typename T>
__device__ inline T FromFloat(float x);
template <>
__device__ inline float FromFloat<float>(float x) {
  return x;
}
template <>
__device__ inline bf16 FromFloat<bf16>(float x) {
  return __float2bfloat16(x);  // to nearest, ties to even
}

/// N elements that one thread moves in one access: 16 bytes when N * sizeof(T) is 16.
template <typename T, int N>
struct alignas(N * sizeof(T)) Pack {
  T at[N];
};
template <typename T, int N>
__device__ inline Pack<T, N> LoadPack(const T* from) {
  return *reinterpret_cast<const Pack<T, N>*>(from);
}
template <typename T, int N>
__device__ inline void StorePack(const Pack<T, N>& pack, T* to) {
  *reinterpret_cast<Pack<T, N>*>(to) = pack;
}

/// The block's dynamic shared memory. The only kind kernels use: its size is the launch's `shared_bytes`.
template <typename T>
__device__ inline T* Shared() {
  extern __shared__ __align__(16) unsigned char metp_shared[];
  return reinterpret_cast<T*>(metp_shared);
}

__device__ inline float WarpSum(float x) {
#pragma unroll
  for (int lane = kWarp / 2; lane > 0; lane /= 2) x += __shfl_xor_sync(kAllLanes, x, lane);
  return x;
}
/// The maximum; NaN where any lane has one (fmaxf alone would drop it).
__device__ inline float WarpMax(float x) {
#pragma unroll
  for (int lane = kWarp / 2; lane > 0; lane /= 2) {
    const float other = __shfl_xor_sync(kAllLanes, x, lane);
    x = x != x || other != other ? x + other : fmaxf(x, other);
  }
  return x;
}

}  // namespace metp::cuda
