// Attention with its scores materialised, for all heads of a block at once: the path whose memory the caller
// decides. Scores of head x are rows [x * nq, (x + 1) * nq) of block.scores; in backward those hold P, and as
// many rows below, dP.

#include <cmath>
#include <limits>

#include "worker/backend/cpu/attention.h"
#include "worker/backend/cpu/attention_softmax.h"
#include "worker/backend/cpu/gemm.h"
#include "worker/backend/cpu/shapes.h"

namespace metp::cpu {
namespace {

constexpr int64_t kTaskRows = 32;  // query rows of one head per pointwise task

/// Calls f(head, first row, last row) for pieces of all heads' rows, over the team.
template <class F>
void ForEachHeadRows(const Team& team, const AttentionBlock& block, const F& f) {
  const int64_t nq = block.q.rows, pieces = (nq + kTaskRows - 1) / kTaskRows;
  ParallelTasks(TeamFor(team.threads, block.scores.size()), pieces * block.heads,
                [&](int thread, int64_t task) {
                  const int64_t first = task % pieces * kTaskRows;
                  f(thread, task / pieces, first, std::min(nq, first + kTaskRows));
                });
}

}  // namespace

void TiledForward(const Team& team, const AttentionBlock& block, const Matrix& o, const Matrix& lse) {
  const int64_t d = block.head_dim, nq = block.q.rows, nk = block.k.rows;
  const Matrix& s = block.scores;
  SgemmThreads(team.threads);
  for (int64_t head = 0; head < block.heads; ++head) {
    const int64_t kv = head * block.kv_heads / block.heads;
    Sgemm(nq, nk, d, block.scale, {At(block.q, 0, head * d), block.q.stride},
          {At(block.k, 0, kv * d), block.k.stride, Transpose::kYes}, 0, At(s, head * nq, 0), s.stride);
  }
  ForEachHeadRows(team, block, [&](int thread, int64_t head, int64_t first, int64_t last) {
    RunningRow running[kTaskRows];
    for (int64_t row = first; row < last; ++row) {
      const float so_far = *At(lse, row, head);
      running[row - first] = {so_far, so_far == -std::numeric_limits<float>::infinity() ? 0.0f : 1.0f};
    }
    SoftmaxForward(block, first, last - first, 0, nk, At(s, head * nq + first, 0), s.stride, running,
                   At(o, first, head * d), o.stride);
    // Normalised at once, both what was there and what the product below adds.
    for (int64_t row = first; row < last; ++row) {
      const KeySpan seen = RowSpan(block, row);
      if (seen.empty()) continue;
      const RunningRow& state = running[row - first];
      ScaleRow(At(o, row, head * d), d, 1 / state.sum);
      ScaleRow(At(s, head * nq + row, seen.begin), seen.end - seen.begin, 1 / state.sum);
      *At(lse, row, head) = state.max + std::log(state.sum);
    }
  });
  for (int64_t head = 0; head < block.heads; ++head) {
    const int64_t kv = head * block.kv_heads / block.heads;
    Sgemm(nq, d, nk, 1, {At(s, head * nq, 0), s.stride}, {At(block.v, 0, kv * d), block.v.stride}, 1,
          At(o, 0, head * d), o.stride);
  }
}

void TiledBackward(const Team& team, const AttentionBlock& block, const Matrix& d_o, const Matrix& lse,
                   const Matrix& delta, const Matrix& dq, const Matrix& dk, const Matrix& dv) {
  const int64_t d = block.head_dim, nq = block.q.rows, nk = block.k.rows;
  const Matrix p = block.scores.Rows(0, block.heads * nq);
  const Matrix ds = block.scores.Rows(block.heads * nq, block.scores.rows);
  SgemmThreads(team.threads);
  for (int64_t head = 0; head < block.heads; ++head) {
    const int64_t kv = head * block.kv_heads / block.heads;
    Sgemm(nq, nk, d, block.scale, {At(block.q, 0, head * d), block.q.stride},
          {At(block.k, 0, kv * d), block.k.stride, Transpose::kYes}, 0, At(p, head * nq, 0), p.stride);
    Sgemm(nq, nk, d, 1, {At(d_o, 0, head * d), d_o.stride},
          {At(block.v, 0, kv * d), block.v.stride, Transpose::kYes}, 0, At(ds, head * nq, 0), ds.stride);
  }
  ForEachHeadRows(team, block, [&](int thread, int64_t head, int64_t first, int64_t last) {
    SoftmaxBackward(block, first, last - first, 0, nk, At(p, head * nq + first, 0),
                    At(ds, head * nq + first, 0), p.stride, At(lse, first, head), lse.stride,
                    At(delta, first, head), delta.stride);
  });
  for (int64_t head = 0; head < block.heads; ++head) {
    const int64_t kv = head * block.kv_heads / block.heads;
    const Operand p_t{At(p, head * nq, 0), p.stride, Transpose::kYes};
    const Operand ds_h{At(ds, head * nq, 0), ds.stride}, ds_t{ds_h.data, ds_h.stride, Transpose::kYes};
    Sgemm(nk, d, nq, 1, p_t, {At(d_o, 0, head * d), d_o.stride}, 1, At(dv, 0, kv * d), dv.stride);
    Sgemm(nk, d, nq, 1, ds_t, {At(block.q, 0, head * d), block.q.stride}, 1, At(dk, 0, kv * d), dk.stride);
    Sgemm(nq, d, nk, 1, ds_h, {At(block.k, 0, kv * d), block.k.stride}, 1, At(dq, 0, head * d), dq.stride);
  }
}

}  // namespace metp::cpu
