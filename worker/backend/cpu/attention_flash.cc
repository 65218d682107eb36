// Fused attention. Work is cut into tiles of query rows x keys; a tile's scores live in the scratch of the
// thread that works on it and are gone when the tile is.
//
// Forward: one task per (head, query tile); it walks the tile's keys and keeps the running maximum, sum and
// output, starting from the state that o and lse hold. Tasks write nothing in common.
//
// Backward: one task per (kv head, query tile i, key tile j). Two tasks write the same rows of dq, dk or dv
// only if they share the kv head and one of i and j, so tasks run in phases: phase s holds the pairs with i =
// (j + s) mod tiles, of which no two share either. No task needs sums of its own, and each row's sum has one
// order whatever the threads.

#include <cmath>
#include <limits>

#include "worker/backend/cpu/attention.h"
#include "worker/backend/cpu/attention_softmax.h"
#include "worker/backend/cpu/gemm.h"
#include "worker/backend/cpu/shapes.h"

namespace metp::cpu {
namespace {

// Chosen by measuring: two tiles of the backward pass stay in a 1 MiB second-level cache beside their
// operands.
constexpr int64_t kForwardRows = 256;
constexpr int64_t kForwardKeys = 512;
constexpr int64_t kBackwardRows = 256;
constexpr int64_t kBackwardKeys = 256;

int64_t Tiles(int64_t n, int64_t tile) { return (n + tile - 1) / tile; }

void ForwardTask(const AttentionBlock& block, const Matrix& o, const Matrix& lse, int64_t head, int64_t first,
                 int64_t last, float* scratch) {
  const int64_t d = block.head_dim, kv = head * block.kv_heads / block.heads;
  float* scores = scratch;
  auto* running = reinterpret_cast<RunningRow*>(scratch + kForwardRows * kForwardKeys);
  for (int64_t row = first; row < last; ++row) {
    const float so_far = *At(lse, row, head);
    running[row - first] = {so_far, so_far == -std::numeric_limits<float>::infinity() ? 0.0f : 1.0f};
  }
  auto rectangle = [&](int64_t row, int64_t row_end, int64_t key, int64_t key_end) {
    const int64_t rows = row_end - row, keys = key_end - key;
    float* o_rows = At(o, row, head * d);
    Sgemm(rows, keys, d, block.scale, {At(block.q, row, head * d), block.q.stride},
          {At(block.k, key, kv * d), block.k.stride, Transpose::kYes}, 0, scores, keys);
    SoftmaxForward(block, row, rows, key, keys, scores, keys, running + (row - first), o_rows, o.stride);
    Sgemm(rows, d, keys, 1, {scores, keys}, {At(block.v, key, kv * d), block.v.stride}, 1, o_rows, o.stride);
  };
  ForEachRectangle(block, first, last, 0, block.k.rows, kForwardKeys, rectangle);
  for (int64_t row = first; row < last; ++row) {
    const RunningRow& state = running[row - first];
    if (RowSpan(block, row).empty()) continue;
    ScaleRow(At(o, row, head * d), d, 1 / state.sum);
    *At(lse, row, head) = state.max + std::log(state.sum);
  }
}

}  // namespace

void FlashForward(const Team& team, const AttentionBlock& block, const Matrix& o, const Matrix& lse) {
  const int64_t tiles = Tiles(block.q.rows, kForwardRows);
  SgemmThreads(team.threads);
  ParallelTasks(team.threads, tiles * block.heads, [&](int thread, int64_t task) {
    // The last query tiles see most under a causal mask: they go first.
    const int64_t tile = tiles - 1 - task / block.heads, first = tile * kForwardRows;
    ForwardTask(block, o, lse, task % block.heads, first, std::min(block.q.rows, first + kForwardRows),
                team.Scratch(thread));
  });
}

void FlashBackward(const Team& team, const AttentionBlock& block, const Matrix& d_o, const Matrix& lse,
                   const Matrix& delta, const Matrix& dq, const Matrix& dk, const Matrix& dv) {
  const int64_t d = block.head_dim, nq = block.q.rows, nk = block.k.rows;
  const int64_t query_tiles = Tiles(nq, kBackwardRows), key_tiles = Tiles(nk, kBackwardKeys);
  const int64_t group = block.heads / block.kv_heads;
  const int64_t phases = std::max(query_tiles, key_tiles);
  auto task = [&](int64_t kv, int64_t i, int64_t j, float* scratch) {
    float* p = scratch;
    float* ds = scratch + kBackwardRows * kBackwardKeys;
    const int64_t first_key = j * kBackwardKeys, last_key = std::min(nk, first_key + kBackwardKeys);
    auto rectangle = [&](int64_t row, int64_t row_end, int64_t key, int64_t key_end) {
      const int64_t rows = row_end - row, keys = key_end - key;
      const Operand k{At(block.k, key, kv * d), block.k.stride}, v{At(block.v, key, kv * d), block.v.stride};
      const Operand k_t{k.data, k.stride, Transpose::kYes}, v_t{v.data, v.stride, Transpose::kYes};
      for (int64_t head = kv * group; head < (kv + 1) * group; ++head) {
        const Operand q{At(block.q, row, head * d), block.q.stride}, g{At(d_o, row, head * d), d_o.stride};
        Sgemm(rows, keys, d, block.scale, q, k_t, 0, p, keys);
        Sgemm(rows, keys, d, 1, g, v_t, 0, ds, keys);
        SoftmaxBackward(block, row, rows, key, keys, p, ds, keys, At(lse, row, head), lse.stride,
                        At(delta, row, head), delta.stride);
        Sgemm(keys, d, rows, 1, {p, keys, Transpose::kYes}, g, 1, At(dv, key, kv * d), dv.stride);
        Sgemm(keys, d, rows, 1, {ds, keys, Transpose::kYes}, q, 1, At(dk, key, kv * d), dk.stride);
        Sgemm(rows, d, keys, 1, {ds, keys}, k, 1, At(dq, row, head * d), dq.stride);
      }
    };
    ForEachRectangle(block, i * kBackwardRows, std::min(nq, (i + 1) * kBackwardRows), first_key, last_key,
                     kBackwardKeys, rectangle);
  };
  SgemmThreads(team.threads);
  for (int64_t phase = 0; phase < phases; ++phase) {
    ParallelTasks(team.threads, phases * block.kv_heads, [&](int thread, int64_t index) {
      const int64_t j = index / block.kv_heads, i = (j + phase) % phases;
      if (i < query_tiles && j < key_tiles) task(index % block.kv_heads, i, j, team.Scratch(thread));
    });
  }
}

}  // namespace metp::cpu
