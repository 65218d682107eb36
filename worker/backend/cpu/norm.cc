// LayerNorm and RMSNorm. Kernels over a range of rows, then the operations.
//
// xhat = (x - mean) * rstd with rstd = 1 / sqrt(mean((x - mean)^2) + eps); RMSNorm has mean 0. y = xhat * w +
// b. With g = dy * w:  dx = rstd * (g - mean(g) - xhat * mean(g * xhat)), without mean(g) for RMSNorm; dw =
// sum dy * xhat.

#include "worker/backend/cpu/cpu_backend.h"
#include "worker/backend/cpu/shapes.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "worker/backend/cpu/norm.cc"
#include <cmath>

#include "hwy/foreach_target.h"  // first of the Highway headers
#include "hwy/highway.h"
#include "worker/backend/cpu/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace metp::cpu::HWY_NAMESPACE {

struct RowStatistics {
  float mean, rstd;
};

HWY_INLINE RowStatistics Statistics(bool centred, const float* x, size_t h, float eps) {
  const F32 d;
  float mean = 0;
  if (centred) mean = SumOver(h, [&](size_t i, auto lanes) HWY_ATTR { return lanes.Load(x + i); }) / h;
  const V32 m = hn::Set(d, mean);
  const float squares = SumOver(h, [&](size_t i, auto lanes) HWY_ATTR {
    const V32 c = lanes.Or(hn::Sub(lanes.Load(x + i), m), hn::Zero(d));
    return hn::Mul(c, c);
  });
  return {mean, 1 / std::sqrt(squares / h + eps)};
}

/// Rows [0, n) of x [n, h] into y. b may be null.
void NormRows(bool centred, const float* x, int64_t x_stride, const float* w, const float* b, float eps,
              float* y, int64_t y_stride, int64_t n, int64_t h) {
  const F32 d;
  for (int64_t row = 0; row < n; ++row, x += x_stride, y += y_stride) {
    const RowStatistics s = Statistics(centred, x, h, eps);
    const V32 mean = hn::Set(d, s.mean), rstd = hn::Set(d, s.rstd);
    ForEachVector(h, [&](size_t i, auto lanes) HWY_ATTR {
      const V32 xhat = hn::Mul(hn::Sub(lanes.Load(x + i), mean), rstd);
      const V32 shift = b == nullptr ? hn::Zero(d) : lanes.Load(b + i);
      lanes.Store(hn::MulAdd(xhat, lanes.Load(w + i), shift), y + i);
    });
  }
}

/// dx [n, h], dw, db [h] are added to; db may be null.
void NormGradientRows(bool centred, const float* x, int64_t x_stride, const float* w, float eps,
                      const float* dy, int64_t dy_stride, float* dx, int64_t dx_stride, float* dw, float* db,
                      int64_t n, int64_t h) {
  const F32 d;
  for (int64_t row = 0; row < n; ++row, x += x_stride, dy += dy_stride, dx += dx_stride) {
    const RowStatistics s = Statistics(centred, x, h, eps);
    const V32 mean = hn::Set(d, s.mean), rstd = hn::Set(d, s.rstd);
    float sum_g = 0, sum_gx = 0;
    SumBothOver(
        h, sum_g, sum_gx,
        [&](size_t i, auto lanes) HWY_ATTR { return hn::Mul(lanes.Load(dy + i), lanes.Load(w + i)); },
        [&](size_t i, auto lanes) HWY_ATTR {
          const V32 xhat = hn::Mul(hn::Sub(lanes.Load(x + i), mean), rstd);
          return hn::Mul(hn::Mul(lanes.Load(dy + i), lanes.Load(w + i)), xhat);
        });
    const V32 mg = hn::Set(d, centred ? sum_g / h : 0), mgx = hn::Set(d, sum_gx / h);
    ForEachVector(h, [&](size_t i, auto lanes) HWY_ATTR {
      const V32 xhat = hn::Mul(hn::Sub(lanes.Load(x + i), mean), rstd);
      const V32 g = lanes.Load(dy + i);
      const V32 gx = hn::NegMulAdd(xhat, mgx, hn::Sub(hn::Mul(g, lanes.Load(w + i)), mg));
      lanes.Store(hn::MulAdd(gx, rstd, lanes.Load(dx + i)), dx + i);
      lanes.Store(hn::MulAdd(g, xhat, lanes.Load(dw + i)), dw + i);
      if (db != nullptr) lanes.Store(hn::Add(g, lanes.Load(db + i)), db + i);
    });
  }
}

void AddPartial(const float* x, float* to, int64_t n) {
  ForEachVector(n, [&](size_t i, auto lanes)
                       HWY_ATTR { lanes.Store(hn::Add(lanes.Load(to + i), lanes.Load(x + i)), to + i); });
}

}  // namespace metp::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>

namespace metp::cpu {
HWY_EXPORT(NormRows);
HWY_EXPORT(NormGradientRows);
HWY_EXPORT(AddPartial);

void CpuBackend::NormForward(Norm norm, const Matrix& x, const Matrix& w, const Matrix& b, float eps,
                             const Matrix& y) {
  RequireNormForward(activation(), x, w, b, y);
  if (x.empty()) return;
  const float* bias = b.empty() ? nullptr : b.f32();
  ParallelRanges(TeamFor(threads_, x.size()), x.rows, 1, [&](int, int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(NormRows)
    (norm == Norm::kLayerNorm, At(x, begin, 0), x.stride, w.f32(), bias, eps, At(y, begin, 0), y.stride,
     end - begin, x.cols);
  });
}

void CpuBackend::NormBackward(Norm norm, const Matrix& x, const Matrix& w, float eps, const Matrix& dy,
                              const Matrix& dx, const Matrix& dw, const Matrix& db) {
  const int64_t h = x.cols;
  RequireNormBackward(activation(), x, w, dy, dx, dw, db);
  Require(2 * h <= kScratchFloats, "NormBackward expects rows that fit its scratch twice");
  if (x.empty()) return;
  // Each thread sums dw, db over its own rows; the partial sums are added in thread order.
  const int team = TeamFor(threads_, x.size());
  for (int thread = 0; thread < team; ++thread) std::fill_n(Scratch(thread), 2 * h, 0.0f);
  ParallelRanges(team, x.rows, 1, [&](int thread, int64_t begin, int64_t end) {
    float* partial = Scratch(thread);
    HWY_DYNAMIC_DISPATCH(NormGradientRows)
    (norm == Norm::kLayerNorm, At(x, begin, 0), x.stride, w.f32(), eps, At(dy, begin, 0), dy.stride,
     At(dx, begin, 0), dx.stride, partial, db.empty() ? nullptr : partial + h, end - begin, h);
  });
  for (int thread = 0; thread < team; ++thread) {
    HWY_DYNAMIC_DISPATCH(AddPartial)(Scratch(thread), dw.f32(), h);
    if (!db.empty()) HWY_DYNAMIC_DISPATCH(AddPartial)(Scratch(thread) + h, db.f32(), h);
  }
}

}  // namespace metp::cpu
#endif  // HWY_ONCE
