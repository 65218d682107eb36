#pragma once

// Tiles of rows in shared memory and rows of results in registers, as the bf16 attention kernels have them.
//
// A tile is kRows x kWidth bf16 by rows, kWidth being room for a head's width; what the matrix does not have is zero. A
// row takes kWidth + 8 elements: an odd number of 16-byte pieces, so that the same piece of 8 neighbouring rows, which
// is what a warp reads at once, lies in different banks.

#include <cuda_runtime.h>

#include <cstdint>

#include "worker/backend/cuda/device_code.h"
#include "worker/backend/cuda/tensor_core.h"
#include "worker/backend/operands.h"

namespace metp::cuda {

template <int kWidth>
inline constexpr int kTileStride = kWidth + 8;
template <int kWidth, int kRows>
inline constexpr int kTileElements = kRows* kTileStride<kWidth>;

/// A bf16 matrix of heads side by side, as kernels take it.
struct Bf16Rows {
  const bf16* data = nullptr;
  int64_t stride = 0;
  bool pieces = false;  // every row of every head consists of aligned pieces of 16 bytes

  __device__ const bf16* At(int64_t row, int64_t column) const { return data + row * stride + column; }
};

inline Bf16Rows Bf16RowsOf(const Matrix& x, int head_dim) {
  const bool aligned = reinterpret_cast<uintptr_t>(x.data) % 16 == 0;
  return {static_cast<const bf16*>(x.data), x.stride, aligned && x.stride % 8 == 0 && head_dim % 8 == 0};
}

/// An fp32 matrix of heads side by side that kernels add to.
struct F32Sums {
  float* data = nullptr;
  int64_t rows = 0, stride = 0;
  bool pairs = false;  // every row of every head consists of aligned pairs

  __device__ float* At(int64_t row, int64_t column) const { return data + row * stride + column; }
};

inline F32Sums F32SumsOf(const Matrix& x, int head_dim) {
  const bool aligned = reinterpret_cast<uintptr_t>(x.data) % 8 == 0;
  return {x.f32(), x.rows, x.stride, aligned && x.stride % 2 == 0 && head_dim % 2 == 0};
}

/// Starts the copy of `rows` rows (any number; what exceeds kRows is left) of `width` columns, the first element at
/// `from`, into a tile. There after CopyAsyncCommit, CopyAsyncWait and a barrier. All kThreads take part.
/// kPieces: x.pieces, known when compiled, since the way by single elements costs registers where it is not taken.
template <int kWidth, int kRows, int kThreads, bool kPieces>
__device__ inline void StartTile(const Bf16Rows& x, const bf16* from, int64_t rows, int width, bf16* tile) {
  constexpr int kPiece = 8;
  constexpr int kLanes = kWidth / kPiece < 8 ? kWidth / kPiece : 8;  // threads side by side in a row
  constexpr int kRowsAtOnce = kThreads / kLanes;
  static_assert(kWidth % (kLanes * kPiece) == 0 && kRows % kRowsAtOnce == 0);
  const int first_row = threadIdx.x / kLanes, first_column = threadIdx.x % kLanes * kPiece;
  if constexpr (kPieces) {
#pragma unroll
    for (int r = 0; r < kRows; r += kRowsAtOnce) {
      const int row = first_row + r;
#pragma unroll
      for (int c = 0; c < kWidth; c += kLanes * kPiece) {
        const int column = first_column + c;
        const bool inside = row < rows && column < width;
        CopyAsync16(tile + row * kTileStride<kWidth> + column,
                    inside ? from + row * x.stride + column : x.data, inside);
      }
    }
  } else {
#pragma unroll 1
    for (int row = first_row; row < kRows; row += kRowsAtOnce) {
#pragma unroll 1
      for (int column = first_column; column < kWidth; column += kLanes * kPiece) {
#pragma unroll 1
        for (int i = column; i < column + kPiece; ++i) {
          const bool inside = row < rows && i < width;
          tile[row * kTileStride<kWidth> + i] = inside ? from[row * x.stride + i] : FromFloat<bf16>(0.0f);
        }
      }
    }
  }
}

/// One of the two rows that a lane has in each fragment: to = keep * to + factor * sum, `to` the row's first column of
/// `width`. `half` chooses row lane / 4 or 8 below it. With keep 0, the old contents are not read.
template <int kTiles>
__device__ inline void MergeRow(const float (&sum)[kTiles][4], int half, float factor, float keep, bool pairs,
                                int width, float* to) {
  const int first = threadIdx.x % 4 * 2;
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
    const int c = 8 * n + first;
    if (c >= width) continue;
    const float low = factor * sum[n][2 * half], high = factor * sum[n][2 * half + 1];
    if (pairs) {
      Pack<float, 2> pair{{0.0f, 0.0f}};
      if (keep != 0) pair = LoadPack<float, 2>(to + c);
      pair.at[0] = low + (keep != 0 ? keep * pair.at[0] : 0.0f);
      pair.at[1] = high + (keep != 0 ? keep * pair.at[1] : 0.0f);
      StorePack(pair, to + c);
    } else {
      to[c] = low + (keep != 0 ? keep * to[c] : 0.0f);
      if (c + 1 < width) to[c + 1] = high + (keep != 0 ? keep * to[c + 1] : 0.0f);
    }
  }
}

/// Adds factor * sum, the warp's rows from `row` on, to those of x, `width` columns from `column` on.
template <int kStrips, int kTiles>
__device__ inline void AddRows(const float (&sum)[kStrips][kTiles][4], float factor, int64_t row,
                               int64_t column, int width, const F32Sums& x) {
#pragma unroll
  for (int i = 0; i < kStrips; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int64_t r = row + 16 * i + 8 * half + threadIdx.x % kWarp / 4;
      if (r < x.rows) MergeRow(sum[i], half, factor, 1.0f, x.pairs, width, x.At(r, column));
    }
  }
}

}  // namespace metp::cuda
