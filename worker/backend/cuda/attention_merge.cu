// What lies between a library's fused attention and a ring's blocks: its dense results merged by log-sum-exp, statistics
// row by row turned into head by head.

#include "worker/backend/cuda/kernels.h"
#include "worker/backend/cuda/row_teams.h"
#include "worker/backend/cuda/walk.h"

namespace metp::cuda {
namespace {

constexpr int kThreads = 256;

/// `lanes`, a power of two, for each head of each row; N columns at once, of which head_dim is a multiple. N is a
/// multiple of 4, or 1.
template <int N>
__global__ void __launch_bounds__(kThreads)
    MergeKernel(Matrix part_o, Matrix part_lse, int head_dim, Matrix o, Matrix lse, int lanes) {
  const int lane = threadIdx.x % lanes;
  const int64_t item = int64_t{blockIdx.x} * (kThreads / lanes) + threadIdx.x / lanes;
  const bool busy = item < lse.rows * lse.cols;
  const int64_t row = busy ? item / lse.cols : 0, head = busy ? item % lse.cols : 0;
  float keep = 0, add = 0, merged = 0;
  if (busy) {
    const float before = RowOf<float>(lse, row)[head], part = RowOf<float>(part_lse, head)[row];
    const float most = fmaxf(before, part);  // finite, since `part` is
    merged = most + logf(expf(before - most) + expf(part - most));
    keep = expf(before - merged);
    add = expf(part - merged);
  }
  __syncwarp();  // all lanes have read lse
  if (!busy) return;
  constexpr int kPack = N < 4 ? N : 4;  // of fp32
  const bf16* const from = RowOf<const bf16>(part_o, row) + head * head_dim;
  float* const to = RowOf<float>(o, row) + head * head_dim;
  for (int col = lane * N; col < head_dim; col += lanes * N) {
    const Pack<bf16, N> x = LoadPack<bf16, N>(from + col);
    Pack<float, kPack> sums[N / kPack];
#pragma unroll
    for (int i = 0; i < N / kPack; ++i) sums[i] = LoadPack<float, kPack>(to + col + i * kPack);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      float& sum = sums[i / kPack].at[i % kPack];
      sum = keep * sum + add * ToFloat(x.at[i]);
    }
#pragma unroll
    for (int i = 0; i < N / kPack; ++i) StorePack(sums[i], to + col + i * kPack);
  }
  if (lane == 0) RowOf<float>(lse, row)[head] = merged;
}

template <int N>
void LaunchMerge(cudaStream_t stream, const Matrix& part_o, const Matrix& part_lse, int head_dim,
                 const Matrix& o, const Matrix& lse) {
  int lanes = 1;
  while (lanes < kWarp && lanes * N < head_dim) lanes *= 2;
  Launch(stream, static_cast<unsigned>(CeilDiv(lse.size() * lanes, kThreads)), kThreads, 0, MergeKernel<N>,
         part_o, part_lse, head_dim, o, lse, lanes);
}

__global__ void __launch_bounds__(kThreads) TransposeKernel(Matrix from, Matrix to) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= from.rows * from.cols) return;
  const int64_t head = i / from.rows, row = i % from.rows;
  RowOf<float>(to, head)[row] = RowOf<float>(from, row)[head];
}

}  // namespace

void MergeAttention(cudaStream_t stream, const Matrix& part_o, const Matrix& part_lse, int head_dim,
                    const Matrix& o, const Matrix& lse) {
  if (lse.empty()) return;
  const auto launch =
      head_dim % 8 == 0 && RowsAligned(part_o, 16) && RowsAligned(o, 16) ? LaunchMerge<8> : LaunchMerge<1>;
  launch(stream, part_o, part_lse, head_dim, o, lse);
}

void TransposeStatistics(cudaStream_t stream, const Matrix& from, const Matrix& to) {
  if (from.empty()) return;
  Launch(stream, static_cast<unsigned>(CeilDiv(from.size(), kThreads)), kThreads, 0, TransposeKernel, from,
         to);
}

}  // namespace metp::cuda
