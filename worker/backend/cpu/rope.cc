// Rotary positions. The kernel over a range of rows, then the operations.

#include "worker/backend/cpu/cpu_backend.h"
#include "worker/backend/cpu/shapes.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "worker/backend/cpu/rope.cc"
#include "hwy/foreach_target.h"  // first of the Highway headers
#include "hwy/highway.h"
#include "worker/backend/cpu/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace metp::cpu::HWY_NAMESPACE {

/// Rows [0, n) of x [n, heads * 2 half]: (x1, x2) becomes (x1 cos - x2 sin, x2 cos + x1 sin), sin times
/// `sign`.
void RotateRows(const float* table, int64_t table_stride, float sign, float* x, int64_t x_stride, int64_t n,
                int64_t heads, int64_t half) {
  const F32 d;
  const V32 direction = hn::Set(d, sign);
  for (int64_t row = 0; row < n; ++row, table += table_stride, x += x_stride) {
    for (int64_t head = 0; head < heads; ++head) {
      float* first = x + head * 2 * half;
      float* second = first + half;
      ForEachVector(half, [&](size_t i, auto lanes) HWY_ATTR {
        const V32 cos = lanes.Load(table + i);
        const V32 sin = hn::Mul(lanes.Load(table + half + i), direction);
        const V32 x1 = lanes.Load(first + i), x2 = lanes.Load(second + i);
        lanes.Store(hn::NegMulAdd(x2, sin, hn::Mul(x1, cos)), first + i);
        lanes.Store(hn::MulAdd(x1, sin, hn::Mul(x2, cos)), second + i);
      });
    }
  }
}

}  // namespace metp::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <cmath>
#include <vector>

namespace metp::cpu {
HWY_EXPORT(RotateRows);

void CpuBackend::RopeTable(const Matrix& positions, double theta, const Matrix& table) {
  const int64_t n = table.rows, d = table.cols;
  RequireRopeTable(positions, table);
  std::vector<double> frequency(d / 2);
  for (int64_t i = 0; i < d / 2; ++i) frequency[i] = std::pow(theta, -2.0 * i / d);
  ParallelRanges(TeamFor(threads_, 16 * table.size()), n, 1, [&](int, int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const double position = positions.i32()[row * positions.stride];
      float* out = At(table, row, 0);
      for (int64_t i = 0; i < d / 2; ++i) {
        const double angle = position * frequency[i];
        out[i] = static_cast<float>(std::cos(angle));
        out[d / 2 + i] = static_cast<float>(std::sin(angle));
      }
    }
  });
}

void CpuBackend::Rope(const Matrix& table, bool inverse, const Matrix& x) {
  const int64_t d = table.cols;
  RequireRope(activation(), table, x);
  ParallelRanges(TeamFor(threads_, x.size()), x.rows, 1, [&](int, int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(RotateRows)
    (At(table, begin, 0), table.stride, inverse ? -1.0f : 1.0f, At(x, begin, 0), x.stride, end - begin,
     x.cols / d, d / 2);
  });
}

}  // namespace metp::cpu
#endif  // HWY_ONCE
