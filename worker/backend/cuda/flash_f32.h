#pragma once

// What the three fp32 attention kernels (forward, key tiles, query tiles) share: tiles of rows in shared
// memory, products of such tiles in registers. Each kernel owns the rows of one tile and walks over others;
// the same three steps serve all:
//   scores[own][other]  = own rows . other rows                  (TileProduct)
//   weights[own][other] from scores, element by element          (the kernel's own)
//   sum[own][width]    += weights[own][other] other[other][width] (AddWeightedRows)
//
// A warp is 4 x 8 lanes and owns whole rows. A lane holds, of the rows OwnRow(i), the columns OtherRow(j) of
// scores and the packs of 4 columns from SumColumn(n) on of sum. So weights go from scores to the second
// product through shared memory that only the warp itself sees. Rows of tiles are padded by 4 floats: the
// same column of 8 neighbouring rows, or of 4, lies in different banks, as do 8 neighbouring packs of a row.

#include <cuda_runtime.h>

#include <cstdint>

#include "worker/backend/cuda/device_code.h"
#include "worker/backend/cuda/tensor_core.h"
#include "worker/backend/operands.h"

namespace metp::cuda {

/// An fp32 matrix as kernels take it.
struct F32Rows {
  float* data = nullptr;
  int64_t rows = 0, stride = 0;
  bool packs = false;  // heads of all rows begin at 16 bytes and are whole packs of 4

  __device__ float* At(int64_t row, int64_t col) const { return data + row * stride + col; }
};

inline F32Rows F32RowsOf(const Matrix& x, int head_dim) {
  const bool aligned = reinterpret_cast<uintptr_t>(x.data) % 16 == 0;
  return {x.f32(), x.rows, x.stride, aligned && x.stride % 4 == 0 && head_dim % 4 == 0};
}

/// Sizes of tiles and what follows from them. kWidth: room for a head's width.
template <int width, int own, int other, int threads>
struct F32Tiles {
  static constexpr int kWidth = width, kOwn = own, kOther = other, kThreads = threads;
  static constexpr int kStride = kWidth + 4;
  static constexpr int kOwnFloats = kOwn * kStride, kOtherFloats = kOther * kStride;

  // Of one thread.
  static constexpr int kRows = kOwn / (kThreads / 8);
  static constexpr int kCols = kOther / 8;
  static constexpr int kPacks = kWidth / 32;

  // Weights are handed over in chunks of 32 other rows; padded by 8 floats, 4 rows lie in different banks.
  static constexpr int kChunk = 32, kChunkStride = kChunk + 8;
  static constexpr int kChunkFloats = kOwn * kChunkStride;
  static_assert(kRows >= 1 && kOther % kChunk == 0 && kWidth % 32 == 0 && kThreads % kWarp == 0);

  using Scores = float[kRows][kCols];
  using Sum = float[kRows][kPacks][4];

  static __device__ int OwnRow(int i) {
    return threadIdx.x / kWarp * (4 * kRows) + 4 * i + threadIdx.x % kWarp / 8;
  }
  static __device__ int OtherRow(int j) { return threadIdx.x % 8 + 8 * j; }
  static __device__ int SumColumn(int n) { return threadIdx.x % 8 * 4 + 32 * n; }
};

/// Starts the copy of rows [row, row + kTileRows), columns [col, col + d) into `tile` [kTileRows][kStride],
/// with zeros for the rows from x.rows on and the columns up to kWidth. There after CopyAsyncWait and a
/// barrier.
template <typename Tiles, int kTileRows>
__device__ inline void StartTile(const F32Rows& x, int64_t row, int64_t col, int d, float* tile) {
  constexpr int kRowPacks = Tiles::kWidth / 4;
  for (int i = threadIdx.x; i < kTileRows * kRowPacks; i += Tiles::kThreads) {
    const int r = i / kRowPacks, c = i % kRowPacks * 4;
    const bool inside = row + r < x.rows && c < d;
    const float* from = inside ? x.At(row + r, col + c) : x.data;
    float* to = tile + r * Tiles::kStride + c;
    if (x.packs) {
      CopyAsync16(to, from, inside);
    } else {
#pragma unroll
      for (int e = 0; e < 4; ++e) to[e] = inside && c + e < d ? from[e] : 0.0f;
    }
  }
  CopyAsyncCommit();
}

/// scores[i][j] = own row OwnRow(i) . other row OtherRow(j).
template <typename Tiles>
__device__ inline void TileProduct(const float* own, const float* other, int d,
                                   typename Tiles::Scores& scores) {
#pragma unroll
  for (int i = 0; i < Tiles::kRows; ++i) {
#pragma unroll
    for (int j = 0; j < Tiles::kCols; ++j) scores[i][j] = 0;
  }
  own += Tiles::OwnRow(0) * Tiles::kStride;
  other += Tiles::OtherRow(0) * Tiles::kStride;
#pragma unroll 1
  for (int c = 0; c < d; c += 4) {
    Pack<float, 4> a[Tiles::kRows];
#pragma unroll
    for (int i = 0; i < Tiles::kRows; ++i) a[i] = LoadPack<float, 4>(own + 4 * i * Tiles::kStride + c);
#pragma unroll
    for (int j = 0; j < Tiles::kCols; ++j) {
      const Pack<float, 4> b = LoadPack<float, 4>(other + 8 * j * Tiles::kStride + c);
#pragma unroll
      for (int i = 0; i < Tiles::kRows; ++i) {
#pragma unroll
        for (int e = 0; e < 4; ++e) scores[i][j] += a[i].at[e] * b.at[e];
      }
    }
  }
}

/// sum[own][c] += weights[own][other] other[other][c]. `chunk`: kChunkFloats of shared memory, in which a
/// warp uses the rows it owns.
template <typename Tiles>
__device__ inline void AddWeightedRows(const typename Tiles::Scores& weights, const float* other,
                                       float* chunk, typename Tiles::Sum& sum) {
  constexpr int kRows = Tiles::kRows, kCols = Tiles::kChunk / 8;
  chunk += Tiles::OwnRow(0) * Tiles::kChunkStride;
  other += Tiles::SumColumn(0);
#pragma unroll
  for (int first = 0; first < Tiles::kCols; first += kCols) {
    __syncwarp();  // the chunk before has been read
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int j = 0; j < kCols; ++j)
        chunk[4 * i * Tiles::kChunkStride + Tiles::OtherRow(j)] = weights[i][first + j];
    }
    __syncwarp();
#pragma unroll 1
    for (int j = 0; j < Tiles::kChunk; j += 4) {
      Pack<float, 4> a[kRows];
#pragma unroll
      for (int i = 0; i < kRows; ++i) a[i] = LoadPack<float, 4>(chunk + 4 * i * Tiles::kChunkStride + j);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float* row = other + (8 * first + j + e) * Tiles::kStride;
#pragma unroll
        for (int n = 0; n < Tiles::kPacks; ++n) {
          const Pack<float, 4> b = LoadPack<float, 4>(row + 32 * n);
#pragma unroll
          for (int i = 0; i < kRows; ++i) {
#pragma unroll
            for (int x = 0; x < 4; ++x) sum[i][n][x] += a[i].at[e] * b.at[x];
          }
        }
      }
    }
  }
}

template <typename Tiles>
__device__ inline void SetZero(typename Tiles::Sum& sum) {
#pragma unroll
  for (int i = 0; i < Tiles::kRows; ++i) {
#pragma unroll
    for (int n = 0; n < Tiles::kPacks; ++n) {
#pragma unroll
      for (int x = 0; x < 4; ++x) sum[i][n][x] = 0;
    }
  }
}

/// to = old * to + factor * sum, of one row: `to` is its first column of `d`.
template <typename Tiles>
__device__ inline void MergeRow(const float (&sum)[Tiles::kPacks][4], float factor, float old, bool packs,
                                int d, float* to) {
#pragma unroll
  for (int n = 0; n < Tiles::kPacks; ++n) {
    const int c = Tiles::SumColumn(n);
    if (packs) {
      if (c >= d) continue;
      Pack<float, 4> pack = LoadPack<float, 4>(to + c);
#pragma unroll
      for (int x = 0; x < 4; ++x) pack.at[x] = old * pack.at[x] + factor * sum[n][x];
      StorePack(pack, to + c);
    } else {
#pragma unroll
      for (int x = 0; x < 4; ++x) {
        if (c + x < d) to[c + x] = old * to[c + x] + factor * sum[n][x];
      }
    }
  }
}

/// Adds each row of `sum` to rows [row, ..) of x, columns [col, col + d).
template <typename Tiles>
__device__ inline void AddRows(const typename Tiles::Sum& sum, const F32Rows& x, int64_t row, int64_t col,
                               int d) {
#pragma unroll
  for (int i = 0; i < Tiles::kRows; ++i) {
    const int64_t r = row + Tiles::OwnRow(i);
    if (r < x.rows) MergeRow<Tiles>(sum[i], 1.0f, 1.0f, x.packs, d, x.At(r, col));
  }
}

/// Calls f with the tiles for a head's width: Sizes<32>, <64>, <128> or <256>.
template <template <int> typename Sizes, typename F>
void WithTilesFor(int head_dim, F&& f) {
  if (head_dim <= 32) return f(Sizes<32>());
  if (head_dim <= 64) return f(Sizes<64>());
  if (head_dim <= 128) return f(Sizes<128>());
  f(Sizes<256>());
}

}  // namespace metp::cuda
