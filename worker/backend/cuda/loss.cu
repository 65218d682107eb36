// Softmax cross-entropy over one tile of logits, rows shared out to teams.

#include "worker/backend/cuda/kernels.h"
#include "worker/backend/cuda/online_softmax.h"

namespace metp::cuda {
namespace {

template <typename T>
__global__ void ForwardKernel(Matrix logits, Matrix targets, int64_t first, Matrix lse, Matrix target_logit,
                              int team_size) {
  const Team team(team_size);
  if (team.row >= logits.rows) return;
  const T* x = RowOf<const T>(logits, team.row);
  const int cols = static_cast<int>(logits.cols);
  ExponentialSum sum = SumExponentials(team, x, 0, cols, 1.0f).OverTeam(team, Shared<float>());
  if (team.lane != 0) return;
  float& merged = *RowOf<float>(lse, team.row);
  sum = Merged(sum, merged);
  merged = sum.max + logf(sum.sum);
  const int64_t target = *RowOf<const int32_t>(targets, team.row);
  if (target >= 0 && target >= first && target < first + cols) {
    *RowOf<float>(target_logit, team.row) = ToFloat(x[target - first]);
  }
}

template <typename T>
__global__ void BackwardKernel(Matrix logits, Matrix targets, int64_t first, Matrix lse, float scale,
                               int team_size) {
  constexpr int kPack = 16 / sizeof(T), kPacks = 4;  // so many accesses in flight
  const Team team(team_size);
  if (team.row >= logits.rows) return;
  T* x = RowOf<T>(logits, team.row);
  const int cols = static_cast<int>(logits.cols), step = team.size * kPack;
  const int64_t target = *RowOf<const int32_t>(targets, team.row);
  const bool counted = target >= 0;
  const int hot = counted && target >= first && target < first + cols ? static_cast<int>(target - first) : -1;
  const float row_lse = *RowOf<const float>(lse, team.row);
  auto gradient = [&](T logit, int column) {
    const float p = __expf(ToFloat(logit) - row_lse);
    return FromFloat<T>(counted ? scale * (column == hot ? p - 1 : p) : 0.0f);
  };
  const Cut<kPack> cut(x, 0, cols);
  if (const int j = cut.Loose(team.lane); j >= 0) x[j] = gradient(x[j], j);
  for (int j = cut.body + team.lane * kPack; j < cut.tail; j += kPacks * step) {
    Pack<T, kPack> packs[kPacks] = {};
#pragma unroll
    for (int u = 0; u < kPacks; ++u) {
      if (counted && j + u * step < cut.tail) packs[u] = LoadPack<T, kPack>(x + j + u * step);
    }
#pragma unroll
    for (int u = 0; u < kPacks; ++u) {
      if (j + u * step >= cut.tail) break;
#pragma unroll
      for (int i = 0; i < kPack; ++i) packs[u].at[i] = gradient(packs[u].at[i], j + u * step + i);
      StorePack(packs[u], x + j + u * step);
    }
  }
}

}  // namespace

void CrossEntropyForward(cudaStream_t stream, const Matrix& logits, const Matrix& targets, int64_t first,
                         const Matrix& lse, const Matrix& target_logit) {
  if (logits.empty()) return;
  const Teams teams = TeamsFor(logits.rows, logits.cols);
  Launch(stream, teams.blocks, teams.threads, kTeamRoomBytes,
         logits.type == DType::kF32 ? ForwardKernel<float> : ForwardKernel<bf16>, logits, targets, first, lse,
         target_logit, teams.size);
}

void CrossEntropyBackward(cudaStream_t stream, const Matrix& logits, const Matrix& targets, int64_t first,
                          const Matrix& lse, float scale) {
  if (logits.empty()) return;
  const Teams teams = TeamsFor(logits.rows, logits.cols);
  Launch(stream, teams.blocks, teams.threads, 0,
         logits.type == DType::kF32 ? BackwardKernel<float> : BackwardKernel<bf16>, logits, targets, first,
         lse, scale, teams.size);
}

}  // namespace metp::cuda
