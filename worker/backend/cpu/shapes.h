#pragma once

// Checks of what callers must get right, and how an elementwise operation walks its operands. Pure; any
// thread.

#include <cstdio>
#include <cstdlib>

#include "worker/backend/cpu/parallel.h"
#include "worker/backend/tensor.h"

namespace metp::cpu {

/// Ends the process when `ok` is false: `what` names the operation and what it expects.
inline void Require(bool ok, const char* what) {
  if (ok) return;
  std::fprintf(stderr, "cpu backend: %s\n", what);
  std::abort();
}

inline bool SameShape(const Matrix& a, const Matrix& b) { return a.rows == b.rows && a.cols == b.cols; }
inline bool IsF32(const Matrix& m, int64_t rows, int64_t cols) {
  return m.type == DType::kF32 && m.rows == rows && m.cols == cols;
}
inline float* At(const Matrix& m, int64_t row, int64_t col) { return m.f32() + row * m.stride + col; }

/// Walks all elements of matrices shaped like `shape` in runs: f(row, col, n) stands for the n elements from
/// (row, col) on. When `contiguous` a run may go on past the end of its row (row is then 0 and col counts
/// on).
template <class F>
void ForEachRun(int threads, const Matrix& shape, bool contiguous, const F& f) {
  const int team = TeamFor(threads, shape.size());
  if (contiguous) {
    ParallelRanges(team, shape.size(), 16,
                   [&](int, int64_t begin, int64_t end) { f(0, begin, end - begin); });
    return;
  }
  ParallelRanges(team, shape.rows, 1, [&](int, int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) f(row, 0, shape.cols);
  });
}

}  // namespace metp::cpu
