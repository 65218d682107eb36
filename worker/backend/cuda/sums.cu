// Sums over rows and over everything: partial sums by many blocks, then their sum in a fixed order. How the work is cut
// depends on shapes alone, never on the device, so that the bits do not either.

#include <algorithm>

#include "worker/backend/cuda/kernels.h"
#include "worker/backend/cuda/partial_sums.h"
#include "worker/backend/cuda/walk.h"

namespace metp::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kBlocks = 132 * 4;  // all at once on a large device

// --- Columns -----------------------------------------------------------------------------------------------------------

/// partials [gridDim.y, cols]: row b the sums over x's rows [b * rows_per_block, ...). A block is `lanes` threads wide (a
/// power of two), each with N neighbouring columns, and as tall as its threads allow.
template <typename T, int N>
__global__ void __launch_bounds__(kThreads)
    ColumnSumsKernel(Matrix x, int64_t rows_per_block, int lanes, float* partials) {
  constexpr int kRows = 4;  // on their way at once
  const int lane = threadIdx.x % lanes, height = kThreads / lanes;
  const int64_t col = (int64_t{blockIdx.x} * lanes + lane) * N;
  const int64_t begin = blockIdx.y * rows_per_block + threadIdx.x / lanes;
  const int64_t end = min(x.rows, (blockIdx.y + int64_t{1}) * rows_per_block);
  float sums[N] = {};
  if (col < x.cols) {
    const T* column = static_cast<const T*>(x.data) + col;
    int64_t row = begin;
    for (; row + (kRows - 1) * height < end; row += kRows * height) {
      Pack<T, N> packs[kRows];
#pragma unroll
      for (int k = 0; k < kRows; ++k) packs[k] = LoadPack<T, N>(column + (row + k * height) * x.stride);
#pragma unroll
      for (int k = 0; k < kRows; ++k) {
#pragma unroll
        for (int i = 0; i < N; ++i) sums[i] += ToFloat(packs[k].at[i]);
      }
    }
    for (; row < end; row += height) {
      const Pack<T, N> pack = LoadPack<T, N>(column + row * x.stride);
#pragma unroll
      for (int i = 0; i < N; ++i) sums[i] += ToFloat(pack.at[i]);
    }
  }
  // Row y of `room` holds what the threads of height y found.
  float* room = Shared<float>();
#pragma unroll
  for (int i = 0; i < N; ++i) room[threadIdx.x * N + i] = sums[i];
  __syncthreads();
  const int width = lanes * N;
  for (int i = threadIdx.x; i < width; i += kThreads) {
    const int64_t at = int64_t{blockIdx.x} * width + i;
    if (at >= x.cols) break;
    float sum = 0;
    for (int y = 0; y < height; ++y) sum += room[y * width + i];
    partials[blockIdx.y * x.cols + at] = sum;
  }
}

/// sums [cols] += the `count` rows of partials, each `stride` after the last. A block takes 32 columns; warp w adds up rows
/// w, w + 32, ..., the first warp what the others have.
__global__ void __launch_bounds__(kWarp* kWarp)
    AddPartialsKernel(const float* partials, int64_t count, int64_t stride, int64_t cols, float* sums) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int64_t col = int64_t{blockIdx.x} * kWarp + lane;
  float sum = 0;
  if (col < cols) {
#pragma unroll 4
    for (int64_t i = warp; i < count; i += kWarp) sum += partials[i * stride + col];
  }
  float* room = Shared<float>();
  room[threadIdx.x] = sum;
  __syncthreads();
  if (warp != 0 || col >= cols) return;
  for (int w = 1; w < kWarp; ++w) sum += room[w * kWarp + lane];
  sums[col] += sum;
}

template <typename T, int N>
void LaunchColumnSums(cudaStream_t stream, Scratch scratch, const Matrix& x, const Matrix& sums) {
  const int64_t packs = CeilDiv(x.cols, N);
  int lanes = 1;
  while (lanes < kWarp && lanes < packs) lanes *= 2;
  const int64_t tiles = CeilDiv(packs, lanes), least_rows = 8 * kThreads / lanes;
  const int64_t most = std::min({kBlocks / tiles, CeilDiv(x.rows, least_rows), scratch.floats / x.cols});
  const int64_t rows_per_block = CeilDiv(x.rows, std::max<int64_t>(most, 1));
  const int64_t blocks = CeilDiv(x.rows, rows_per_block);
  Launch(stream, dim3(static_cast<unsigned>(tiles), static_cast<unsigned>(blocks)), kThreads,
         sizeof(float) * N * kThreads, ColumnSumsKernel<T, N>, x, rows_per_block, lanes, scratch.data);
  AddPartials(stream, scratch.data, blocks, x.cols, sums);
}

// --- Totals ------------------------------------------------------------------------------------------------------------

/// Sum over the block, in thread 0. Ends the kernel's use of shared memory.
__device__ double BlockTotal(double x) {
#pragma unroll
  for (int lane = kWarp / 2; lane > 0; lane /= 2) x += __shfl_xor_sync(kAllLanes, x, lane);
  double* room = Shared<double>();
  if (threadIdx.x % kWarp == 0) room[threadIdx.x / kWarp] = x;
  __syncthreads();
  if (threadIdx.x != 0) return x;
  double sum = 0;
  for (int warp = 0; warp < kThreads / kWarp; ++warp) sum += room[warp];
  return sum;
}

/// partials [gridDim.x]: sums of x^2 in fp64. Squares are formed in fp64 too: those of large gradients leave fp32.
template <int N>
__global__ void __launch_bounds__(kThreads) SumSquaresKernel(Walk walk, Matrix x, double* partials) {
  constexpr int kPacks = N == 1 ? 8 : 4;
  double sums[kPacks] = {};
  Walk::Place place = walk.Start();
  while (place.row < walk.rows) {
    Pack<float, N> packs[kPacks];
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      const float* from = static_cast<const float*>(x.data) + place.row * x.stride + place.pack * N;
      const int elements = walk.Elements<N>(place);
      packs[k] = {};
      if (elements == N) {
        packs[k] = LoadPack<float, N>(from);
      } else {
#pragma unroll
        for (int i = 0; i < N; ++i) {
          if (i < elements) packs[k].at[i] = from[i];
        }
      }
      walk.Advance(place);
    }
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const double value = packs[k].at[i];
        sums[k] = fma(value, value, sums[k]);
      }
    }
  }
  double sum = 0;
#pragma unroll
  for (int k = 0; k < kPacks; ++k) sum += sums[k];
  sum = BlockTotal(sum);
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

/// partials [gridDim.x]: sums of lse - target_logit over the rows that count.
__global__ void __launch_bounds__(kThreads)
    LossSumKernel(Matrix lse, Matrix target_logit, Matrix targets, double* partials) {
  double sum = 0;
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t row = int64_t{blockIdx.x} * kThreads + threadIdx.x; row < lse.rows; row += step) {
    const int32_t target = static_cast<const int32_t*>(targets.data)[row * targets.stride];
    const double own = static_cast<const float*>(lse.data)[row * lse.stride];
    const double logit = static_cast<const float*>(target_logit.data)[row * target_logit.stride];
    if (target >= 0) sum += own - logit;
  }
  sum = BlockTotal(sum);
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kThreads)
    AddTotalKernel(const double* partials, int64_t count, double* total) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < count; i += kThreads) sum += partials[i];
  sum = BlockTotal(sum);
  if (threadIdx.x == 0) *total += sum;
}

constexpr size_t kTotalRoom = kThreads / kWarp * sizeof(double);

unsigned TotalBlocks(int64_t work, int64_t per_block) {
  return static_cast<unsigned>(std::clamp<int64_t>(CeilDiv(work, per_block), 1, kBlocks));
}

void AddTotal(cudaStream_t stream, const double* partials, int64_t count, const Matrix& total) {
  Launch(stream, 1, kThreads, kTotalRoom, AddTotalKernel, partials, count, static_cast<double*>(total.data));
}

template <int N>
void LaunchSumSquares(cudaStream_t stream, Scratch scratch, int64_t rows, int64_t cols, const Matrix& x,
                      const Matrix& total) {
  double* partials = reinterpret_cast<double*>(scratch.data);
  const unsigned blocks = TotalBlocks(rows * CeilDiv(cols, N), 4 * kThreads);
  Launch(stream, blocks, kThreads, kTotalRoom, SumSquaresKernel<N>, WalkFor<N>(rows, cols, blocks), x,
         partials);
  AddTotal(stream, partials, blocks, total);
}

}  // namespace

void AddPartials(cudaStream_t stream, const float* partials, int64_t count, int64_t stride,
                 const Matrix& sums) {
  Launch(stream, static_cast<unsigned>(CeilDiv(sums.cols, kWarp)), kWarp * kWarp,
         kWarp * kWarp * sizeof(float), AddPartialsKernel, partials, count, stride, sums.cols,
         static_cast<float*>(sums.data));
}

void AddColumnSums(cudaStream_t stream, Scratch scratch, const Matrix& x, const Matrix& sums) {
  if (x.empty()) return;
  if (x.cols > kScratchFloats) {
    AddColumnSums(stream, scratch, x.Cols(0, kScratchFloats), sums.Cols(0, kScratchFloats));
    AddColumnSums(stream, scratch, x.Cols(kScratchFloats, x.cols), sums.Cols(kScratchFloats, x.cols));
    return;
  }
  WithActivation(x.type, [&]<typename T>(T) {
    constexpr int kPack = 16 / sizeof(T);
    if (x.cols % kPack == 0 && RowsAligned(x, 16)) {
      LaunchColumnSums<T, kPack>(stream, scratch, x, sums);
    } else {
      LaunchColumnSums<T, 1>(stream, scratch, x, sums);
    }
  });
}

void SumSquares(cudaStream_t stream, Scratch scratch, const Matrix& x, const Matrix& total) {
  if (x.empty()) return;
  const bool flat = x.contiguous();
  const int64_t rows = flat ? 1 : x.rows, cols = flat ? x.size() : x.cols;
  if (RowsAligned(x, 16)) {
    LaunchSumSquares<4>(stream, scratch, rows, cols, x, total);
  } else {
    LaunchSumSquares<1>(stream, scratch, rows, cols, x, total);
  }
}

void LossSum(cudaStream_t stream, Scratch scratch, const Matrix& lse, const Matrix& target_logit,
             const Matrix& targets, const Matrix& total) {
  if (lse.rows == 0) return;
  double* partials = reinterpret_cast<double*>(scratch.data);
  const unsigned blocks = TotalBlocks(lse.rows, 4 * kThreads);
  Launch(stream, blocks, kThreads, kTotalRoom, LossSumKernel, lse, target_logit, targets, partials);
  AddTotal(stream, partials, blocks, total);
}

}  // namespace metp::cuda
