// What is pointwise of attention over scores in memory, rows shared out to teams. Row x * nq + i of the scores is of
// head x and query row i. A row is changed in place, in ascending pieces each of which is read whole before it is
// written: the bf16 values, which lie from the row's start on, never overwrite a score that is still to be read.

#include "worker/backend/cuda/flash_range.h"
#include "worker/backend/cuda/kernels.h"
#include "worker/backend/cuda/online_softmax.h"

namespace metp::cuda {
namespace {

/// In each of n columns the fp32 values of kRows rows become f of them where the column is `seen`, elsewhere 0, as P at
/// the start of each row. N columns in one access, so all rows must start alike in memory (multiples of N apart).
template <typename P, int N, int kRows, typename F>
__device__ void Replace(const Team& team, float* const (&rows)[kRows], int n, KeyRange seen, const F& f) {
  constexpr bool kNarrows = sizeof(P) < sizeof(float);
  constexpr int kPacks = 16 / (N * kRows);  // 64 bytes of a thread in flight
  const Cut<N> cut(rows[0], 0, n);
  const bool packed = !kNarrows || cut.body == 0;  // otherwise a pack of P is not aligned
  const int loose = cut.Loose(team.lane), step = team.size * N;
  float loose_x[kRows] = {};
  if (seen.Has(loose)) {
    for (int r = 0; r < kRows; ++r) loose_x[r] = rows[r][loose];
    f(loose_x);
  }
  for (int piece = cut.body; piece < cut.tail; piece += kPacks * step) {
    Pack<float, N> packs[kPacks][kRows] = {};
#pragma unroll
    for (int u = 0; u < kPacks; ++u) {
      const int j = piece + u * step + team.lane * N;
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        if (j < cut.tail && j < seen.last && j + N > seen.first) {
          packs[u][r] = LoadPack<float, N>(rows[r] + j);
        }
      }
    }
    if (kNarrows) team.Sync();
#pragma unroll
    for (int u = 0; u < kPacks; ++u) {
      const int j = piece + u * step + team.lane * N;
      if (j >= cut.tail) break;
      Pack<P, N> out[kRows];
#pragma unroll
      for (int i = 0; i < N; ++i) {
        float x[kRows];
        for (int r = 0; r < kRows; ++r) x[r] = packs[u][r].at[i];
        f(x);
        for (int r = 0; r < kRows; ++r) out[r].at[i] = FromFloat<P>(seen.Has(j + i) ? x[r] : 0.0f);
      }
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        P* to = reinterpret_cast<P*>(rows[r]) + j;
        if (packed) {
          StorePack(out[r], to);
        } else {
          for (int i = 0; i < N; ++i) to[i] = out[r].at[i];
        }
      }
    }
  }
  if (kNarrows) team.Sync();
  if (loose < 0) return;
  for (int r = 0; r < kRows; ++r) reinterpret_cast<P*>(rows[r])[loose] = FromFloat<P>(loose_x[r]);
}

__device__ void Scale(const Team& team, float* x, int n, float factor) {
  for (int j = team.lane; j < n; j += team.size) x[j] = factor == 0 ? 0.0f : x[j] * factor;
}

template <typename P>
__global__ void ForwardKernel(AttentionBlock block, FlashMask mask, Matrix o, Matrix lse, int team_size) {
  const Team team(team_size);
  if (team.row >= block.heads * mask.queries) return;
  const int64_t head = team.row / mask.queries, query = team.row % mask.queries;
  float* const scores[] = {RowOf<float>(block.scores, team.row)};
  const KeyRange seen = SeenByRow(mask, query);
  if (seen.first == seen.last) {
    Replace<P, 4>(team, scores, mask.keys, seen, [](float(&)[1]) {});
    return;
  }
  float* const row_lse = RowOf<float>(lse, query) + head;
  const float before = *row_lse;
  const ExponentialSum part = SumExponentials(team, scores[0], seen.first, seen.last, block.scale);
  const ExponentialSum total = Merged(part.OverTeam(team, Shared<float>()), before);
  const float max = total.max, inverse = 1 / total.sum, scale = block.scale;
  Replace<P, 4>(team, scores, mask.keys, seen,
                [=](float(&x)[1]) { x[0] = __expf(scale * x[0] - max) * inverse; });
  const float factor = expf(before - max) * inverse;  // 0 where `before` is -inf
  Scale(team, RowOf<float>(o, query) + head * block.head_dim, block.head_dim, factor);
  if (team.lane == 0) *row_lse = max + logf(total.sum);
}

template <typename P, int N>
__global__ void BackwardKernel(AttentionBlock block, FlashMask mask, Matrix lse, Matrix delta,
                               int team_size) {
  const Team team(team_size);
  const int64_t below = block.heads * mask.queries;  // from a row of s to its row of dp
  if (team.row >= below) return;
  const int64_t head = team.row / mask.queries, query = team.row % mask.queries;
  const float row_lse = RowOf<const float>(lse, query)[head], scale = block.scale;
  const float row_delta = RowOf<const float>(delta, query)[head];
  const KeyRange seen = row_lse == -kInfinity ? KeyRange{} : SeenByRow(mask, query);
  float* const rows[] = {RowOf<float>(block.scores, team.row), RowOf<float>(block.scores, below + team.row)};
  Replace<P, N>(team, rows, mask.keys, seen, [=](float(&x)[2]) {
    x[0] = __expf(scale * x[0] - row_lse);
    x[1] = x[0] * (x[1] - row_delta) * scale;
  });
}

}  // namespace

void TiledSoftmaxForward(cudaStream_t stream, const AttentionBlock& block, const Matrix& o,
                         const Matrix& lse) {
  if (block.scores.empty()) return;
  const Teams teams = TeamsFor(block.heads * block.q.rows, block.k.rows);
  Launch(stream, teams.blocks, teams.threads, kTeamRoomBytes,
         block.q.type == DType::kF32 ? ForwardKernel<float> : ForwardKernel<bf16>, block, MaskOf(block), o,
         lse, teams.size);
}

void TiledSoftmaxBackward(cudaStream_t stream, const AttentionBlock& block, const Matrix& lse,
                          const Matrix& delta) {
  if (block.scores.empty()) return;
  const int64_t rows = block.heads * block.q.rows;
  const Teams teams = TeamsFor(rows, block.k.rows);
  // Both rows of a pair start alike only where the distance between them is a whole number of packs.
  const bool alike = rows * block.scores.stride % 4 == 0;
  const auto kernel = block.q.type == DType::kF32
                          ? (alike ? BackwardKernel<float, 4> : BackwardKernel<float, 1>)
                          : (alike ? BackwardKernel<bf16, 4> : BackwardKernel<bf16, 1>);
  Launch(stream, teams.blocks, teams.threads, 0, kernel, block, MaskOf(block), lse, delta, teams.size);
}

}  // namespace metp::cuda
