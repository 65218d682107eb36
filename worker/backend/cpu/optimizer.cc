// AdamW. The kernel over one run of elements, then the operations.

#include <bit>
#include <cmath>

#include "worker/backend/cpu/adamw.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/backend/cpu/parallel.h"
#include "worker/backend/cpu/shapes.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "worker/backend/cpu/optimizer.cc"
#include "hwy/foreach_target.h"  // first of the Highway headers
#include "hwy/highway.h"
#include "worker/backend/cpu/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace metp::cpu::HWY_NAMESPACE {

/// m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2;
/// w -= learning_rate * (m / correction1 / (sqrt(v / correction2) + eps) + weight_decay * w).
void AdamWRun(const AdamWStep& step, const float* g, float* m, float* v, float* w, int64_t n) {
  const F32 d;
  const V32 scale = hn::Set(d, step.gradient_scale);
  const V32 beta1 = hn::Set(d, step.beta1), rest1 = hn::Set(d, 1 - step.beta1);
  const V32 beta2 = hn::Set(d, step.beta2), rest2 = hn::Set(d, 1 - step.beta2);
  const V32 inverse2 = hn::Set(d, 1 / step.correction2), eps = hn::Set(d, step.eps);
  const V32 rate = hn::Set(d, step.learning_rate / step.correction1);
  const V32 decay = hn::Set(d, step.learning_rate * step.weight_decay);
  ForEachVector(n, [&](size_t i, auto lanes) HWY_ATTR {
    const V32 gradient = hn::Mul(lanes.Load(g + i), scale);
    const V32 first = hn::MulAdd(beta1, lanes.Load(m + i), hn::Mul(rest1, gradient));
    const V32 second = hn::MulAdd(beta2, lanes.Load(v + i), hn::Mul(rest2, hn::Mul(gradient, gradient)));
    const V32 spread = hn::Add(hn::Sqrt(hn::Mul(second, inverse2)), eps);
    // The decrease is formed first: 1 - rate * decay would round a small decay away.
    const V32 weight = lanes.Load(w + i);
    const V32 decrease = hn::MulAdd(rate, hn::Div(first, spread), hn::Mul(decay, weight));
    lanes.Store(first, m + i);
    lanes.Store(second, v + i);
    lanes.Store(hn::Sub(weight, decrease), w + i);
  });
}

}  // namespace metp::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace metp::cpu {
HWY_EXPORT(AdamWRun);

namespace {

/// fp32 to bf16, to nearest, ties to even; NaN stays NaN.
uint16_t NarrowToBf16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  if (std::isnan(x)) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace

void AdamWOnHost(int threads, const AdamWStep& step, int64_t n, const float* g, float* m, float* v, float* w,
                 uint16_t* narrow) {
  constexpr int64_t kGrain = 1024;
  ParallelRanges(TeamFor(threads, n), n, kGrain, [&](int, int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(AdamWRun)(step, g + begin, m + begin, v + begin, w + begin, end - begin);
    if (narrow == nullptr) return;
    for (int64_t i = begin; i < end; ++i) narrow[i] = NarrowToBf16(w[i]);
  });
}

void CpuBackend::AdamW(const AdamWStep& step, const Matrix& g, const Matrix& m, const Matrix& v,
                       const Matrix& w) {
  RequireAdamW(g, m, v, w);
  const bool contiguous = g.contiguous() && m.contiguous() && v.contiguous() && w.contiguous();
  ForEachRun(threads_, w, contiguous, [&](int64_t row, int64_t col, int64_t n) {
    HWY_DYNAMIC_DISPATCH(AdamWRun)
    (step, At(g, row, col), At(m, row, col), At(v, row, col), At(w, row, col), n);
  });
}

}  // namespace metp::cpu
#endif  // HWY_ONCE
