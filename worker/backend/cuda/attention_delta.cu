// delta = rowsum(d_o * o) per head: the dot products of two matrices' head rows, a few lanes of a warp for each.

#include "worker/backend/cuda/kernels.h"
#include "worker/backend/cuda/row_teams.h"
#include "worker/backend/cuda/walk.h"

namespace metp::cuda {
namespace {

constexpr int kThreads = 256;

/// from[0 .. N), at most 16 bytes at a time.
template <int N, typename T>
__device__ void LoadFloats(const T* from, float (&x)[N]) {
  constexpr int kPack = N * sizeof(T) <= 16 ? N : 16 / sizeof(T);
  Pack<T, kPack> packs[N / kPack];
#pragma unroll
  for (int u = 0; u < N / kPack; ++u) packs[u] = LoadPack<T, kPack>(from + u * kPack);
#pragma unroll
  for (int i = 0; i < N; ++i) x[i] = ToFloat(packs[i / kPack].at[i % kPack]);
}

/// `lanes`, a power of two, for each of the rows * heads products; N columns at once, of which head_dim is a multiple.
template <typename Gradient, typename Output, int N>
__global__ void DeltaKernel(Matrix d_o, Matrix o, int head_dim, Matrix delta, int lanes) {
  const int lane = threadIdx.x % lanes;
  const int64_t product = int64_t{blockIdx.x} * (kThreads / lanes) + threadIdx.x / lanes;
  const int64_t row = product / delta.cols, head = product % delta.cols;
  float sum = 0;
  if (row < delta.rows) {
    const Gradient* g = RowOf<const Gradient>(d_o, row) + head * head_dim;
    const Output* x = RowOf<const Output>(o, row) + head * head_dim;
    for (int j = lane * N; j < head_dim; j += lanes * N) {
      float a[N], b[N];
      LoadFloats(g + j, a);
      LoadFloats(x + j, b);
#pragma unroll
      for (int i = 0; i < N; ++i) sum += a[i] * b[i];
    }
  }
  for (int other = lanes / 2; other > 0; other /= 2) sum += __shfl_xor_sync(kAllLanes, sum, other);
  if (row < delta.rows && lane == 0) RowOf<float>(delta, row)[head] = sum;
}

template <typename Gradient, typename Output, int N>
void LaunchDelta(cudaStream_t stream, const Matrix& d_o, const Matrix& o, int head_dim, const Matrix& delta) {
  int lanes = 1;
  while (lanes < kWarp && lanes * N < head_dim) lanes *= 2;
  Launch(stream, static_cast<unsigned>(CeilDiv(delta.size() * lanes, kThreads)), kThreads, 0,
         DeltaKernel<Gradient, Output, N>, d_o, o, head_dim, delta, lanes);
}

template <typename Gradient, typename Output>
void LaunchDelta(cudaStream_t stream, const Matrix& d_o, const Matrix& o, int head_dim, const Matrix& delta) {
  constexpr int kPack = sizeof(Gradient) == 2 || sizeof(Output) == 2 ? 8 : 4;
  if (head_dim % kPack == 0 && RowsAligned(d_o, 16) && RowsAligned(o, 16)) {
    LaunchDelta<Gradient, Output, kPack>(stream, d_o, o, head_dim, delta);
  } else {
    LaunchDelta<Gradient, Output, 1>(stream, d_o, o, head_dim, delta);
  }
}

}  // namespace

void AttentionDelta(cudaStream_t stream, const Matrix& d_o, const Matrix& o, int head_dim,
                    const Matrix& delta) {
  if (delta.empty()) return;
  const bool wide_gradient = d_o.type == DType::kF32, wide_output = o.type == DType::kF32;
  const auto launch = wide_gradient ? (wide_output ? LaunchDelta<float, float> : LaunchDelta<float, bf16>)
                                    : (wide_output ? LaunchDelta<bf16, float> : LaunchDelta<bf16, bf16>);
  launch(stream, d_o, o, head_dim, delta);
}

}  // namespace metp::cuda
