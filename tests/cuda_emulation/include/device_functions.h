#pragma once

// What device code calls beyond the standard library: barriers, warp intrinsics, atomics, single-precision shortcuts.
// Barriers and warp intrinsics are where the fibers of a block change (fibers.cc).

#include <cmath>
#include <cstdint>
#include <cstring>

#include "vector_types.h"

namespace metp::emulation {

// The thread in hand. Constant while a kernel's function runs, so the compiler may keep them.
[[gnu::const]] uint3 ThreadIndex();
[[gnu::const]] uint3 BlockIndex();

enum class Vote { kBallot, kAny, kAll };
enum class BlockVote { kNone, kOr, kAnd, kCount };
void SyncWarp(unsigned mask);
/// The bits that lane `source` gave; lanes of `mask` only. `name` is the intrinsic's, for what is reported.
uint64_t Shuffle(unsigned mask, uint64_t bits, int source, const char* name);
unsigned WarpVote(unsigned mask, bool predicate, Vote vote);
int SyncBlock(BlockVote vote, int predicate);
/// The thread's lane in its warp, whatever the shape of the block.
[[gnu::const]] int Lane();

template <typename T>
inline T ShuffleValue(unsigned mask, T value, int source, const char* name) {
  static_assert(sizeof(T) <= 8, "a shuffle moves 4 or 8 bytes");
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = Shuffle(mask, bits, source, name);
  T result;
  std::memcpy(&result, &bits, sizeof(T));
  return result;
}

}  // namespace metp::emulation

inline void __syncthreads() { metp::emulation::SyncBlock(metp::emulation::BlockVote::kNone, 0); }
inline int __syncthreads_or(int predicate) {
  return metp::emulation::SyncBlock(metp::emulation::BlockVote::kOr, predicate);
}
inline int __syncthreads_and(int predicate) {
  return metp::emulation::SyncBlock(metp::emulation::BlockVote::kAnd, predicate);
}
inline int __syncthreads_count(int predicate) {
  return metp::emulation::SyncBlock(metp::emulation::BlockVote::kCount, predicate);
}
inline void __syncwarp(unsigned mask = 0xffffffffu) { metp::emulation::SyncWarp(mask); }

// Lanes are counted within segments of `width`; who would read beyond its segment reads itself. (CUDA C++ Programming
// Guide, "Warp Shuffle Functions".)
template <typename T>
inline T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
  const int first = metp::emulation::Lane() & ~(width - 1);
  return metp::emulation::ShuffleValue(mask, value, first + (source & (width - 1)), "__shfl_sync");
}
template <typename T>
inline T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32) {
  const int lane = metp::emulation::Lane(), source = lane ^ lanes;
  const bool beyond = source >= (lane & ~(width - 1)) + width;
  return metp::emulation::ShuffleValue(mask, value, beyond ? lane : source, "__shfl_xor_sync");
}
template <typename T>
inline T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32) {
  const int lane = metp::emulation::Lane();
  const bool beyond = (lane & (width - 1)) + static_cast<int>(by) >= width;
  return metp::emulation::ShuffleValue(mask, value, beyond ? lane : lane + static_cast<int>(by),
                                       "__shfl_down_sync");
}
template <typename T>
inline T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32) {
  const int lane = metp::emulation::Lane();
  const bool beyond = (lane & (width - 1)) < static_cast<int>(by);
  return metp::emulation::ShuffleValue(mask, value, beyond ? lane : lane - static_cast<int>(by),
                                       "__shfl_up_sync");
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  return metp::emulation::WarpVote(mask, predicate != 0, metp::emulation::Vote::kBallot);
}
inline int __any_sync(unsigned mask, int predicate) {
  return static_cast<int>(metp::emulation::WarpVote(mask, predicate != 0, metp::emulation::Vote::kAny));
}
inline int __all_sync(unsigned mask, int predicate) {
  return static_cast<int>(metp::emulation::WarpVote(mask, predicate != 0, metp::emulation::Vote::kAll));
}

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }

// Compiled with -fsanitize=thread, these come to the library as atomic accesses.
template <typename T>
inline T atomicAdd(T* at, T value) {
  static_assert(static_cast<T>(0.5) == 0, "sums of floats in any order: not the same bits each time");
  return __atomic_fetch_add(at, value, __ATOMIC_RELAXED);
}
template <typename T>
inline T atomicMax(T* at, T value) {
  T old = __atomic_load_n(at, __ATOMIC_RELAXED);
  while (old < value &&
         !__atomic_compare_exchange_n(at, &old, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  return old;
}
template <typename T>
inline T atomicMin(T* at, T value) {
  T old = __atomic_load_n(at, __ATOMIC_RELAXED);
  while (value < old &&
         !__atomic_compare_exchange_n(at, &old, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  return old;
}

template <typename T>
inline T __ldg(const T* from) {
  return *from;
}

inline int __float_as_int(float x) { return __builtin_bit_cast(int, x); }
inline unsigned __float_as_uint(float x) { return __builtin_bit_cast(unsigned, x); }
inline float __int_as_float(int x) { return __builtin_bit_cast(float, x); }
inline float __uint_as_float(unsigned x) { return __builtin_bit_cast(float, x); }

inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline double rsqrt(double x) { return 1.0 / std::sqrt(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fsqrt_rn(float x) { return std::sqrt(x); }
inline float __fmaf_rn(float x, float y, float z) { return std::fma(x, y, z); }
// The C library's header declares these names and does not define them.
extern "C" {
inline float __expf(float x) noexcept { return ::expf(x); }
inline float __logf(float x) noexcept { return ::logf(x); }
inline float __log2f(float x) noexcept { return ::log2f(x); }
inline float __powf(float x, float y) noexcept { return ::powf(x, y); }
}

inline int min(int x, int y) { return x < y ? x : y; }
inline int max(int x, int y) { return x < y ? y : x; }
inline unsigned min(unsigned x, unsigned y) { return x < y ? x : y; }
inline unsigned max(unsigned x, unsigned y) { return x < y ? y : x; }
inline long min(long x, long y) { return x < y ? x : y; }
inline long max(long x, long y) { return x < y ? y : x; }
inline long long min(long long x, long long y) { return x < y ? x : y; }
inline long long max(long long x, long long y) { return x < y ? y : x; }
inline float min(float x, float y) { return std::fmin(x, y); }
inline float max(float x, float y) { return std::fmax(x, y); }
