// CpuBackend's attention operations: checks, and the choice between the fused and the materialised path.

#include "worker/backend/cpu/attention.h"

#include "worker/backend/cpu/attention_softmax.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/backend/cpu/shapes.h"

namespace metp::cpu {

void CpuBackend::AttentionForward(const AttentionBlock& block, const Matrix& o, const Matrix& lse) {
  RequireAttentionForward(activation(), block, o, lse);
  if (block.q.rows == 0 || block.k.rows == 0) return;
  const Team team{threads_, Scratch(0), kScratchFloats};
  if (block.scores.empty()) {
    FlashForward(team, block, o, lse);
  } else {
    TiledForward(team, block, o, lse);
  }
}

void CpuBackend::AttentionDelta(const Matrix& d_o, const Matrix& o, int head_dim, const Matrix& delta) {
  RequireAttentionDelta(activation(), d_o, o, head_dim, delta);
  ParallelRanges(TeamFor(threads_, o.size()), o.rows, 1, [&](int, int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t head = 0; head < delta.cols; ++head) {
        *At(delta, row, head) = DotRow(At(d_o, row, head * head_dim), At(o, row, head * head_dim), head_dim);
      }
    }
  });
}

void CpuBackend::AttentionBackward(const AttentionBlock& block, const Matrix& d_o, const Matrix& o,
                                   const Matrix& lse, const Matrix& delta, const Matrix& dq, const Matrix& dk,
                                   const Matrix& dv) {
  RequireAttentionBackward(activation(), block, d_o, o, lse, delta, dq, dk, dv);
  if (block.q.rows == 0 || block.k.rows == 0) return;
  const Team team{threads_, Scratch(0), kScratchFloats};
  if (block.scores.empty()) {
    FlashBackward(team, block, d_o, lse, delta, dq, dk, dv);
  } else {
    TiledBackward(team, block, d_o, lse, delta, dq, dk, dv);
  }
}

}  // namespace metp::cpu
