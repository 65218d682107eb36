// Common ground of the vector kernels, compiled once per instruction set: strips with a ragged end, sums over
// lanes, and an exponential. Included by kernel files between foreach_target.h and their own HWY_NAMESPACE;
// pure functions, any thread.

#if defined(METP_CPU_VECTOR_INL_H) == defined(HWY_TARGET_TOGGLE)  // once per target
#ifdef METP_CPU_VECTOR_INL_H
#undef METP_CPU_VECTOR_INL_H
#else
#define METP_CPU_VECTOR_INL_H
#endif

#include <cstddef>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace metp::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using V32 = hn::Vec<F32>;

/// A whole vector of a strip.
struct Whole {
  HWY_INLINE V32 Load(const float* p) const { return hn::LoadU(F32(), p); }
  HWY_INLINE void Store(V32 v, float* p) const { hn::StoreU(v, F32(), p); }
  /// v where the strip has elements, `other` past its end.
  HWY_INLINE V32 Or(V32 v, V32 other) const { return v; }
};

/// The last `n` elements of a strip, fewer than a vector: loads give zeros past the end, stores leave it
/// alone.
struct Part {
  size_t n;
  HWY_INLINE V32 Load(const float* p) const {
#if HWY_MEM_OPS_MIGHT_FAULT
    HWY_ALIGN float lanes[HWY_MAX_BYTES / sizeof(float)] = {};
    hn::SafeCopyN(n, F32(), p, lanes);
    return hn::Load(F32(), lanes);
#else
    return hn::MaskedLoad(hn::FirstN(F32(), n), F32(), p);
#endif
  }
  HWY_INLINE void Store(V32 v, float* p) const {
#if HWY_MEM_OPS_MIGHT_FAULT
    HWY_ALIGN float lanes[HWY_MAX_BYTES / sizeof(float)];
    hn::Store(v, F32(), lanes);
    hn::SafeCopyN(n, F32(), lanes, p);
#else
    hn::BlendedStore(v, hn::FirstN(F32(), n), F32(), p);
#endif
  }
  HWY_INLINE V32 Or(V32 v, V32 other) const { return hn::IfThenElse(hn::FirstN(F32(), n), v, other); }
};

/// Calls f(i, lanes) for the vectors of a strip of n elements, i the first element, lanes Whole or (at the
/// end) Part.
template <class F>
HWY_INLINE void ForEachVector(size_t n, const F& f) {
  const size_t width = hn::Lanes(F32());
  size_t i = 0;
  for (; i + width <= n; i += width) f(i, Whole());
  if (i < n) f(i, Part{n - i});
}

HWY_INLINE float SumLanes(V32 v) { return hn::GetLane(hn::SumOfLanes(F32(), v)); }

/// sum over i of f(i, lanes): four running sums, so that additions need not wait for each other. f gives zero
/// past the end.
template <class F>
HWY_INLINE float SumOver(size_t n, const F& f) {
  const F32 d;
  const size_t width = hn::Lanes(d);
  V32 s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
  size_t i = 0;
  for (; i + 4 * width <= n; i += 4 * width) {
    s0 = hn::Add(s0, f(i, Whole()));
    s1 = hn::Add(s1, f(i + width, Whole()));
    s2 = hn::Add(s2, f(i + 2 * width, Whole()));
    s3 = hn::Add(s3, f(i + 3 * width, Whole()));
  }
  for (; i + width <= n; i += width) s0 = hn::Add(s0, f(i, Whole()));
  if (i < n) s1 = hn::Add(s1, f(i, Part{n - i}));
  return SumLanes(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)));
}

/// Two sums in one pass: sum over i of a(i, lanes) into `first` and of b(i, lanes) into `second`.
template <class A, class B>
HWY_INLINE void SumBothOver(size_t n, float& first, float& second, const A& a, const B& b) {
  const F32 d;
  const size_t width = hn::Lanes(d);
  V32 a0 = hn::Zero(d), a1 = a0, b0 = a0, b1 = a0;
  size_t i = 0;
  for (; i + 2 * width <= n; i += 2 * width) {
    a0 = hn::Add(a0, a(i, Whole()));
    b0 = hn::Add(b0, b(i, Whole()));
    a1 = hn::Add(a1, a(i + width, Whole()));
    b1 = hn::Add(b1, b(i + width, Whole()));
  }
  if (i + width <= n) {
    a0 = hn::Add(a0, a(i, Whole()));
    b0 = hn::Add(b0, b(i, Whole()));
    i += width;
  }
  if (i < n) {
    a1 = hn::Add(a1, a(i, Part{n - i}));
    b1 = hn::Add(b1, b(i, Part{n - i}));
  }
  first = SumLanes(hn::Add(a0, a1));
  second = SumLanes(hn::Add(b0, b1));
}

/// Largest of x [n], -inf when n is 0. A NaN among them may be passed over.
HWY_INLINE float MaxOf(const float* x, size_t n) {
  const F32 d;
  const size_t width = hn::Lanes(d);
  const V32 lowest = hn::Neg(hn::Inf(d));
  V32 m0 = lowest, m1 = lowest, m2 = lowest, m3 = lowest;
  size_t i = 0;
  for (; i + 4 * width <= n; i += 4 * width) {
    m0 = hn::Max(m0, hn::LoadU(d, x + i));
    m1 = hn::Max(m1, hn::LoadU(d, x + i + width));
    m2 = hn::Max(m2, hn::LoadU(d, x + i + 2 * width));
    m3 = hn::Max(m3, hn::LoadU(d, x + i + 3 * width));
  }
  for (; i + width <= n; i += width) m0 = hn::Max(m0, hn::LoadU(d, x + i));
  if (i < n) {
    const Part part{n - i};
    m1 = hn::Max(m1, part.Or(part.Load(x + i), lowest));
  }
  return hn::GetLane(hn::MaxOfLanes(d, hn::Max(hn::Max(m0, m1), hn::Max(m2, m3))));
}

/// e^x for x up to 87, relative error 8e-8 + |x| 1.4e-8; below -86 it stays at e^-86, which no fp32 sum next
/// to a one can see. NaN stays NaN, which is why this is not Highway's Exp (its NaN is 0: a diverged run
/// would look healthy); it also takes half the instructions. e^x = 2^n 2^r with x log2(e) = n + r, |r| <=
/// 1/2; 2^r by a minimax polynomial (Remez, with the constant held at 1, so that e^0 is exactly 1).
HWY_INLINE V32 Exp(V32 x) {
  const F32 d;
  const hn::RebindToUnsigned<F32> du;
  const V32 log2_e = hn::Set(d, 1.44269504088896341f);
  // Adding 1.5 * 2^23 rounds to an integer and leaves it in the lowest bits; 127 more is the bias of the
  // exponent.
  const V32 rounder = hn::Set(d, 12582912.0f + 127.0f);
  x = hn::Max(hn::Set(d, -86.0f), x);  // in this order: x86 keeps the second operand when one is NaN
  const V32 n = hn::MulAdd(x, log2_e, rounder);
  const V32 r = hn::MulSub(x, log2_e, hn::Sub(n, rounder));
  V32 p = hn::MulAdd(hn::Set(d, 1.55946778e-4f), r, hn::Set(d, 1.34066434e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 9.61769279e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 5.55031039e-2f));
  p = hn::MulAdd(p, r, hn::Set(d, 2.40226522e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 6.93147242e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  const V32 power = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(du, n)));
  return hn::Mul(p, power);
}

/// 1 / (1 + e^-x).
HWY_INLINE V32 Sigmoid(V32 x) {
  const F32 d;
  const V32 one = hn::Set(d, 1.0f);
  return hn::Div(one, hn::Add(one, Exp(hn::Min(hn::Set(d, 86.0f), hn::Neg(x)))));
}

}  // namespace metp::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
