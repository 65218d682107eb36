#pragma once

// How an elementwise operation walks its operands. Pure; any thread.

#include "worker/backend/checks.h"
#include "worker/backend/cpu/parallel.h"
#include "worker/backend/tensor.h"

namespace metp::cpu {

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
