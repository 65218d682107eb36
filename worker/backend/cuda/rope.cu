// Rotary positions.

#include <cmath>

#include "worker/backend/cuda/kernels.h"
#include "worker/backend/cuda/walk.h"

namespace metp::cuda {
namespace {

constexpr int kThreads = 256;

/// table [n, d]: a thread keeps one angle's frequency and walks over rows.
__global__ void __launch_bounds__(kThreads) RopeTableKernel(Matrix positions, double theta, Matrix table) {
  const int64_t d = table.cols, half = d / 2;
  const int64_t i = int64_t{blockIdx.x} * kWarp + threadIdx.x;
  if (i >= half) return;
  const double frequency = pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(d));
  const int64_t step = int64_t{gridDim.y} * blockDim.y;
  for (int64_t row = int64_t{blockIdx.y} * blockDim.y + threadIdx.y; row < table.rows; row += step) {
    const double position = static_cast<const int32_t*>(positions.data)[row * positions.stride];
    float* out = static_cast<float*>(table.data) + row * table.stride;
    double sin, cos;
    sincos(position * frequency, &sin, &cos);
    out[i] = static_cast<float>(cos);
    out[half + i] = static_cast<float>(sin);
  }
}

/// (x1, x2) becomes (x1 cos - x2 sin, x2 cos + x1 sin), sin times `sign`. The walk goes over pairs: its columns are those
/// of all heads' first halves.
template <typename T, int N>
__global__ void __launch_bounds__(kWalkThreads)
    RopeKernel(Walk walk, Matrix table, float sign, Matrix x, int packs_per_head) {
  constexpr int kPacks = N * sizeof(T) == 16 ? 2 : 4;
  const int64_t half = table.cols / 2;
  Walk::Place place = walk.Start();
  while (place.row < walk.rows) {
    T* first[kPacks];
    Pack<T, N> x1[kPacks], x2[kPacks];
    Floats<N> cos[kPacks], sin[kPacks];
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      first[k] = nullptr;
      if (place.row < walk.rows) {
        const int pack = static_cast<int>(place.pack), head = pack / packs_per_head;
        const int i = (pack - head * packs_per_head) * N;
        const float* angles = static_cast<const float*>(table.data) + place.row * table.stride + i;
        first[k] = static_cast<T*>(x.data) + place.row * x.stride + head * table.cols + i;
        x1[k] = LoadPack<T, N>(first[k]);
        x2[k] = LoadPack<T, N>(first[k] + half);
        cos[k] = Floats<N>(angles);
        sin[k] = Floats<N>(angles + half);
      }
      walk.Advance(place);
    }
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      if (first[k] == nullptr) continue;
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const float a = ToFloat(x1[k].at[i]), b = ToFloat(x2[k].at[i]), s = sign * sin[k].at[i];
        x1[k].at[i] = FromFloat<T>(fmaf(-b, s, a * cos[k].at[i]));
        x2[k].at[i] = FromFloat<T>(fmaf(a, s, b * cos[k].at[i]));
      }
      StorePack(x1[k], first[k]);
      StorePack(x2[k], first[k] + half);
    }
  }
}

template <typename T, int N>
void LaunchRope(cudaStream_t stream, const Matrix& table, float sign, const Matrix& x) {
  const int64_t pairs = x.cols / 2;
  const unsigned blocks = GridFor(x.rows * (pairs / N), 2 * kWalkThreads);
  Launch(stream, blocks, kWalkThreads, 0, RopeKernel<T, N>, WalkFor<N>(x.rows, pairs, blocks), table, sign, x,
         static_cast<int>(table.cols / 2 / N));
}

}  // namespace

void RopeTable(cudaStream_t stream, const Matrix& positions, double theta, const Matrix& table) {
  if (table.empty()) return;
  constexpr int kRows = kThreads / kWarp;
  const unsigned tiles = static_cast<unsigned>(CeilDiv(table.cols / 2, kWarp));
  const unsigned blocks = GridFor(table.rows, 4 * kRows);
  Launch(stream, dim3(tiles, blocks), dim3(kWarp, kRows), 0, RopeTableKernel, positions, theta, table);
}

void Rope(cudaStream_t stream, const Matrix& table, bool inverse, const Matrix& x) {
  if (x.empty()) return;
  const float sign = inverse ? -1.0f : 1.0f;
  const int64_t half = table.cols / 2;
  WithActivation(x.type, [&]<typename T>(T) {
    constexpr int kPack = 16 / sizeof(T);
    if (half % kPack == 0 && RowsAligned(x, 16) && RowsAligned(table, 16)) {
      LaunchRope<T, kPack>(stream, table, sign, x);
    } else {
      LaunchRope<T, 1>(stream, table, sign, x);
    }
  });
}

}  // namespace metp::cuda
