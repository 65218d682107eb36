// Gather from and scatter-add into a shard of a table: memory-bound row copies, left to the compiler.

#include <algorithm>

#include "worker/backend/cpu/cpu_backend.h"
#include "worker/backend/cpu/shapes.h"

namespace metp::cpu {
namespace {

void AddTo(const float* from, float* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] += from[i];
}

/// Row of the shard that id number `row` names, or -1.
int64_t ShardRow(const Matrix& ids, int64_t row, int64_t first, const Matrix& table) {
  const int64_t local = ids.i32()[row * ids.stride] - first;
  return local >= 0 && local < table.rows ? local : -1;
}

}  // namespace

void CpuBackend::EmbeddingGather(const Matrix& ids, int64_t first, const Matrix& table, bool accumulate,
                                 const Matrix& x) {
  RequireEmbeddingGather(activation(), ids, table, x);
  ParallelRanges(TeamFor(threads_, x.size()), x.rows, 1, [&](int, int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t from = ShardRow(ids, row, first, table);
      if (from < 0) continue;
      if (accumulate) {
        AddTo(At(table, from, 0), At(x, row, 0), x.cols);
      } else {
        std::copy_n(At(table, from, 0), x.cols, At(x, row, 0));
      }
    }
  });
}

void CpuBackend::EmbeddingScatterAdd(const Matrix& ids, int64_t first, const Matrix& dx,
                                     const Matrix& d_table) {
  RequireEmbeddingScatterAdd(activation(), ids, dx, d_table);
  // By columns: rows of one id meet in row order on one thread, whatever the number of threads.
  ParallelRanges(TeamFor(threads_, dx.size()), dx.cols, 16, [&](int, int64_t begin, int64_t end) {
    for (int64_t row = 0; row < dx.rows; ++row) {
      const int64_t to = ShardRow(ids, row, first, d_table);
      if (to >= 0) AddTo(At(dx, row, begin), At(d_table, to, begin), end - begin);
    }
  });
}

}  // namespace metp::cpu
