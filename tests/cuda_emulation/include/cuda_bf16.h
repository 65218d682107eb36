#pragma once

// bfloat16 as the toolkit's cuda_bf16.h has it: the upper half of an fp32, rounded to nearest, ties to even; NaN becomes
// 0x7fff. Arithmetic through fp32, rounded after each operation.

#include <cuda_runtime.h>

#include <cstdint>

struct __nv_bfloat16_raw {
  unsigned short x;
};

struct alignas(2) __nv_bfloat16 {
  __nv_bfloat16() = default;
  constexpr __nv_bfloat16(__nv_bfloat16_raw raw) : bits_(raw.x) {}
  constexpr __nv_bfloat16(float x) : bits_(Round(x)) {}
  explicit constexpr __nv_bfloat16(double x) : bits_(Round(static_cast<float>(x))) {}
  explicit constexpr __nv_bfloat16(int x) : bits_(Round(static_cast<float>(x))) {}

  constexpr operator float() const { return __builtin_bit_cast(float, static_cast<uint32_t>(bits_) << 16); }
  constexpr operator __nv_bfloat16_raw() const { return {bits_}; }
  constexpr unsigned short bits() const { return bits_; }

 private:
  static constexpr unsigned short Round(float x) {
    const uint32_t bits = __builtin_bit_cast(uint32_t, x);
    if (x != x) return 0x7fff;
    return static_cast<unsigned short>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  }

  unsigned short bits_;
};

struct alignas(4) __nv_bfloat162 {
  __nv_bfloat16 x, y;
};

using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;

inline __nv_bfloat16 __float2bfloat16(float x) { return __nv_bfloat16(x); }
inline __nv_bfloat16 __float2bfloat16_rn(float x) { return __nv_bfloat16(x); }
inline __nv_bfloat16 __double2bfloat16(double x) { return __nv_bfloat16(x); }
inline float __bfloat162float(__nv_bfloat16 x) { return x; }
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) { return __nv_bfloat16_raw{bits}; }
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return x.bits(); }

inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return {__nv_bfloat16(x), __nv_bfloat16(y)}; }
inline __nv_bfloat162 __float22bfloat162_rn(float2 v) { return __floats2bfloat162_rn(v.x, v.y); }
inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
inline float2 __bfloat1622float2(__nv_bfloat162 v) { return {v.x, v.y}; }
inline float __low2float(__nv_bfloat162 v) { return v.x; }
inline float __high2float(__nv_bfloat162 v) { return v.y; }
