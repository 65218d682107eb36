#pragma once

// Sums of exponentials in one pass over a row, the maximum subtracted (Milakov and Gimelshein, "Online normalizer
// calculation for softmax", 2018).

#include <limits>

#include "worker/backend/cuda/row_teams.h"

namespace metp::cuda {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr float kLowest = std::numeric_limits<float>::lowest();

/// sum over x of e^x as sum * e^max. `max` is a finite stand-in for -inf at the start and drops NaN (fmaxf does);
/// `sum` keeps it, as no x is left out of it.
struct ExponentialSum {
  float max = kLowest, sum = 0;

  template <int N>
  __device__ void Add(const float (&x)[N]) {
    float largest = max;
#pragma unroll
    for (int i = 0; i < N; ++i) largest = fmaxf(largest, x[i]);
    sum *= __expf(max - largest);
#pragma unroll
    for (int i = 0; i < N; ++i) sum += __expf(x[i] - largest);
    max = largest;
  }
  /// Of all 32 lanes.
  __device__ ExponentialSum OverWarp() const {
    const float largest = WarpMax(max);
    return {largest, WarpSum(sum * __expf(max - largest))};
  }
  /// Of the whole team, the same bits in every thread. `room`: 64 floats of shared memory, used once.
  __device__ ExponentialSum OverTeam(const Team& team, float* room) const {
    ExponentialSum part = OverWarp();
    if (team.size == kWarp) return part;
    const int lane = team.lane % kWarp, warp = team.lane / kWarp;
    if (lane == 0) {
      room[2 * warp] = part.max;
      room[2 * warp + 1] = part.sum;
    }
    __syncthreads();
    part = {};
    if (lane < team.size / kWarp) part = {room[2 * lane], room[2 * lane + 1]};
    return part.OverWarp();
  }
};
inline constexpr size_t kTeamRoomBytes = 2 * kWarp * sizeof(float);

/// Sum of e^(scale x) over row[begin .. end), scale > 0: the calling thread's part of it.
template <typename T>
__device__ inline ExponentialSum SumExponentials(const Team& team, const T* row, int begin, int end,
                                                 float scale) {
  constexpr int kPack = 16 / sizeof(T), kPacks = 4;  // so many accesses in flight
  const Cut<kPack> cut(row, begin, end);
  ExponentialSum total;
  if (const int j = cut.Loose(team.lane); j >= 0) total.Add({scale * ToFloat(row[j])});
  const int step = team.size * kPack;
  for (int j = cut.body + team.lane * kPack; j < cut.tail; j += kPacks * step) {
    Pack<T, kPack> packs[kPacks];
#pragma unroll
    for (int u = 0; u < kPacks; ++u) {
      if (j + u * step < cut.tail) packs[u] = LoadPack<T, kPack>(row + j + u * step);
    }
#pragma unroll
    for (int u = 0; u < kPacks; ++u) {
      if (j + u * step >= cut.tail) break;
      float x[kPack];
#pragma unroll
      for (int i = 0; i < kPack; ++i) x[i] = scale * ToFloat(packs[u].at[i]);
      total.Add(x);
    }
  }
  return total;
}

/// e^lse + the sum. Its logarithm is max + log(sum).
__device__ inline ExponentialSum Merged(const ExponentialSum& block, float lse) {
  const float largest = fmaxf(block.max, lse);
  return {largest, block.sum * expf(block.max - largest) + expf(lse - largest)};
}

}  // namespace metp::cuda
