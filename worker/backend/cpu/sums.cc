// Sums over rows and over everything. Kernels, then the operations.

#include "worker/backend/cpu/cpu_backend.h"
#include "worker/backend/cpu/shapes.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "worker/backend/cpu/sums.cc"
#include "hwy/foreach_target.h"  // first of the Highway headers
#include "hwy/highway.h"
#include "worker/backend/cpu/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace metp::cpu::HWY_NAMESPACE {

/// sums [cols] += sum over the rows of x, eight rows at a time: few passes over sums, and pairwise rounding
/// within them.
void ColumnSums(const float* x, int64_t rows, int64_t stride, float* sums, int64_t cols) {
  int64_t row = 0;
  for (; row + 8 <= rows; row += 8) {
    const float* r = x + row * stride;
    ForEachVector(cols, [&](size_t i, auto lanes) HWY_ATTR {
      const float* p = r + i;
      const V32 a = hn::Add(lanes.Load(p), lanes.Load(p + stride));
      const V32 b = hn::Add(lanes.Load(p + 2 * stride), lanes.Load(p + 3 * stride));
      const V32 c = hn::Add(lanes.Load(p + 4 * stride), lanes.Load(p + 5 * stride));
      const V32 e = hn::Add(lanes.Load(p + 6 * stride), lanes.Load(p + 7 * stride));
      lanes.Store(hn::Add(lanes.Load(sums + i), hn::Add(hn::Add(a, b), hn::Add(c, e))), sums + i);
    });
  }
  for (; row < rows; ++row) {
    ForEachVector(cols, [&](size_t i, auto lanes) HWY_ATTR {
      lanes.Store(hn::Add(lanes.Load(sums + i), lanes.Load(x + row * stride + i)), sums + i);
    });
  }
}

/// Sum of x^2 in fp64. Squares are formed in fp64 too: those of large gradients leave fp32.
double SquareSum(const float* x, int64_t n) {
#if HWY_HAVE_FLOAT64
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> half;
  const int64_t width = hn::Lanes(d);
  auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
  int64_t i = 0;
  for (; i + 4 * width <= n; i += 4 * width) {
    const auto a = hn::PromoteTo(d, hn::LoadU(half, x + i));
    const auto b = hn::PromoteTo(d, hn::LoadU(half, x + i + width));
    const auto c = hn::PromoteTo(d, hn::LoadU(half, x + i + 2 * width));
    const auto e = hn::PromoteTo(d, hn::LoadU(half, x + i + 3 * width));
    s0 = hn::MulAdd(a, a, s0);
    s1 = hn::MulAdd(b, b, s1);
    s2 = hn::MulAdd(c, c, s2);
    s3 = hn::MulAdd(e, e, s3);
  }
  double sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
#else
  double sum = 0;
  int64_t i = 0;
#endif
  for (; i < n; ++i) sum += static_cast<double>(x[i]) * x[i];
  return sum;
}

}  // namespace metp::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <vector>

namespace metp::cpu {
HWY_EXPORT(ColumnSums);
HWY_EXPORT(SquareSum);

void CpuBackend::AddColumnSums(const Matrix& x, const Matrix& sums) {
  RequireAddColumnSums(activation(), x, sums);
  // By columns, so that each sum has one order, whatever the number of threads.
  ParallelRanges(TeamFor(threads_, x.size()), x.cols, 16, [&](int, int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(ColumnSums)(At(x, 0, begin), x.rows, x.stride, sums.f32() + begin, end - begin);
  });
}

void CpuBackend::SumSquares(const Matrix& x, const Matrix& total) {
  RequireSumSquares(x, total);
  std::vector<double> partial(threads_, 0.0);
  const int team = TeamFor(threads_, x.size());
  const Matrix flat = x.contiguous() ? x.Reshape(0, 1, x.size()) : x;
  if (flat.rows == 1) {
    ParallelRanges(team, flat.cols, 16, [&](int thread, int64_t begin, int64_t end) {
      partial[thread] = HWY_DYNAMIC_DISPATCH(SquareSum)(flat.f32() + begin, end - begin);
    });
  } else {
    ParallelRanges(team, flat.rows, 1, [&](int thread, int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        partial[thread] += HWY_DYNAMIC_DISPATCH(SquareSum)(At(flat, row, 0), flat.cols);
      }
    });
  }
  for (const double p : partial) *total.f64() += p;
}

}  // namespace metp::cpu
#endif  // HWY_ONCE
