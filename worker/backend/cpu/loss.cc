// Softmax cross-entropy, tile by tile over the vocabulary. Kernels over one row of a tile, then the
// operations.

#include "worker/backend/cpu/cpu_backend.h"
#include "worker/backend/cpu/shapes.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "worker/backend/cpu/loss.cc"
#include <algorithm>
#include <cmath>
#include <limits>

#include "hwy/foreach_target.h"  // first of the Highway headers
#include "hwy/highway.h"
#include "worker/backend/cpu/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace metp::cpu::HWY_NAMESPACE {

/// log(e^lse + sum of e^x), the maximum subtracted; n > 0.
float MergeLogSumExp(const float* x, int64_t n, float lse) {
  const F32 d;
  const float largest = std::max(lse, MaxOf(x, n));
  // Only -inf (or NaN) so far: subtracting it would turn a plain -inf into NaN.
  const float pivot = std::max(largest, std::numeric_limits<float>::lowest());
  const V32 m = hn::Set(d, pivot);
  const float sum = SumOver(n, [&](size_t i, auto lanes) HWY_ATTR {
    return lanes.Or(Exp(hn::Sub(lanes.Load(x + i), m)), hn::Zero(d));
  });
  return pivot + std::log(sum + std::exp(lse - pivot));
}

/// x = scale * e^(x - lse).
void ScaledSoftmax(float* x, int64_t n, float lse, float scale) {
  const F32 d;
  const V32 m = hn::Set(d, lse), s = hn::Set(d, scale);
  ForEachVector(n, [&](size_t i, auto lanes)
                       HWY_ATTR { lanes.Store(hn::Mul(s, Exp(hn::Sub(lanes.Load(x + i), m))), x + i); });
}

}  // namespace metp::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace metp::cpu {
HWY_EXPORT(MergeLogSumExp);
HWY_EXPORT(ScaledSoftmax);

namespace {

int32_t Target(const Matrix& targets, int64_t row) { return targets.i32()[row * targets.stride]; }

}  // namespace

void CpuBackend::CrossEntropyForward(const Matrix& logits, const Matrix& targets, int64_t first,
                                     const Matrix& lse, const Matrix& target_logit) {
  const int64_t n = logits.rows;
  RequireCrossEntropyForward(activation(), logits, targets, lse, target_logit);
  if (logits.empty()) return;
  ParallelRanges(TeamFor(threads_, logits.size()), n, 1, [&](int, int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      float& merged = *At(lse, row, 0);
      merged = HWY_DYNAMIC_DISPATCH(MergeLogSumExp)(At(logits, row, 0), logits.cols, merged);
      const int64_t column = Target(targets, row) - first;
      if (Target(targets, row) >= 0 && column >= 0 && column < logits.cols) {
        *At(target_logit, row, 0) = *At(logits, row, column);
      }
    }
  });
}

void CpuBackend::CrossEntropyBackward(const Matrix& logits, const Matrix& targets, int64_t first,
                                      const Matrix& lse, float scale) {
  const int64_t n = logits.rows;
  RequireCrossEntropyBackward(activation(), logits, targets, lse);
  ParallelRanges(TeamFor(threads_, logits.size()), n, 1, [&](int, int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      if (Target(targets, row) < 0) {
        std::fill_n(At(logits, row, 0), logits.cols, 0.0f);
        continue;
      }
      HWY_DYNAMIC_DISPATCH(ScaledSoftmax)(At(logits, row, 0), logits.cols, *At(lse, row, 0), scale);
      const int64_t column = Target(targets, row) - first;
      if (column >= 0 && column < logits.cols) *At(logits, row, column) -= scale;
    }
  });
}

void CpuBackend::LossSum(const Matrix& lse, const Matrix& target_logit, const Matrix& targets,
                         const Matrix& total) {
  const int64_t n = lse.rows;
  RequireLossSum(lse, target_logit, targets, total);
  double sum = 0;
  for (int64_t row = 0; row < n; ++row) {
    if (Target(targets, row) >= 0) sum += static_cast<double>(*At(lse, row, 0)) - *At(target_logit, row, 0);
  }
  *total.f64() += sum;
}

}  // namespace metp::cpu
#endif  // HWY_ONCE
