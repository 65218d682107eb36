// CpuBackend's attention operations: checks, and the choice between the fused and the materialised path.

#include "worker/backend/cpu/attention.h"

#include "worker/backend/cpu/attention_softmax.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/backend/cpu/shapes.h"

namespace metp::cpu {
namespace {

void RequireBlock(const AttentionBlock& b) {
  const int64_t nq = b.q.rows, nk = b.k.rows, heads = b.heads, kv_heads = b.kv_heads, d = b.head_dim;
  Require(b.head_dim > 0 && b.kv_heads > 0 && b.heads > 0 && b.heads % b.kv_heads == 0,
          "attention expects heads to be a multiple of kv_heads, and a head_dim");
  Require(IsF32(b.q, nq, heads * d) && IsF32(b.k, nk, kv_heads * d) && IsF32(b.v, nk, kv_heads * d),
          "attention expects fp32 q [nq, heads * d] and k, v [nk, kv_heads * d]");
  Require(b.visible.type == DType::kI32 && b.visible.rows == nq && b.visible.cols == 2,
          "attention expects int32 visible [nq, 2]");
}

}  // namespace

void CpuBackend::AttentionForward(const AttentionBlock& block, const Matrix& o, const Matrix& lse) {
  RequireBlock(block);
  const int64_t nq = block.q.rows, heads = block.heads, d = block.head_dim;
  Require(IsF32(o, nq, heads * d) && IsF32(lse, nq, block.heads),
          "AttentionForward expects fp32 o [nq, heads * d] and lse [nq, heads]");
  if (nq == 0 || block.k.rows == 0) return;
  const Team team{threads_, Scratch(0), kScratchFloats};
  if (block.scores.empty()) {
    FlashForward(team, block, o, lse);
  } else {
    Require(IsF32(block.scores, block.heads * nq, block.k.rows),
            "AttentionForward expects fp32 scores [heads * nq, nk]");
    TiledForward(team, block, o, lse);
  }
}

void CpuBackend::AttentionDelta(const Matrix& d_o, const Matrix& o, int head_dim, const Matrix& delta) {
  Require(SameShape(d_o, o) && d_o.type == DType::kF32 && o.type == DType::kF32 && head_dim > 0 &&
              IsF32(delta, o.rows, o.cols / head_dim) && o.cols % head_dim == 0,
          "AttentionDelta expects fp32 d_o, o [n, heads * d] and delta [n, heads]");
  ParallelRanges(TeamFor(threads_, o.size()), o.rows, 1, [&](int, int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t head = 0; head < delta.cols; ++head) {
        *At(delta, row, head) = DotRow(At(d_o, row, head * head_dim), At(o, row, head * head_dim), head_dim);
      }
    }
  });
}

void CpuBackend::AttentionBackward(const AttentionBlock& block, const Matrix& d_o, const Matrix& lse,
                                   const Matrix& delta, const Matrix& dq, const Matrix& dk,
                                   const Matrix& dv) {
  RequireBlock(block);
  const int64_t nq = block.q.rows, nk = block.k.rows, d = block.head_dim;
  Require(IsF32(d_o, nq, block.heads * d) && IsF32(lse, nq, block.heads) && IsF32(delta, nq, block.heads) &&
              IsF32(dq, nq, block.heads * d) && IsF32(dk, nk, block.kv_heads * d) &&
              IsF32(dv, nk, block.kv_heads * d),
          "AttentionBackward expects fp32 d_o, dq [nq, heads * d], lse, delta [nq, heads], dk, dv [nk, "
          "kv_heads * d]");
  if (nq == 0 || nk == 0) return;
  const Team team{threads_, Scratch(0), kScratchFloats};
  if (block.scores.empty()) {
    FlashBackward(team, block, d_o, lse, delta, dq, dk, dv);
  } else {
    Require(IsF32(block.scores, nq * 2 * block.heads, nk),
            "AttentionBackward expects fp32 scores [2 * heads * nq, nk]");
    TiledBackward(team, block, d_o, lse, delta, dq, dk, dv);
  }
}

}  // namespace metp::cpu
