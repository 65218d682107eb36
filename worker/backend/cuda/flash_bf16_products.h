#pragma once

// The products of attention on the tensor cores, each of mma.m16n8k16 with fragments from tiles in shared memory
// (flash_bf16_tiles.h) or straight from the registers of the product before.
//
// A warp owns kStrips strips of 16 rows, whole rows each. sum[i][n] is the 16 x 8 fragment of strip i, columns 8n ..:
// lane l holds rows g and g + 8, columns 2t and 2t + 1 of it, with g = l / 4, t = l % 4:
//   [0] [g][2t]   [1] [g][2t + 1]   [2] [g + 8][2t]   [3] [g + 8][2t + 1]
// Two such fragments side by side, rounded to bf16, are the A operand of a product over their 16 columns, as they lie.
// So scores never leave the registers.

#include <cuda_runtime.h>

#include <cstdint>

#include "worker/backend/cuda/device_code.h"
#include "worker/backend/cuda/flash_bf16_tiles.h"
#include "worker/backend/cuda/flash_range.h"
#include "worker/backend/cuda/tensor_core.h"

namespace metp::cuda {

inline constexpr float kLog2E = 1.44269504f;

template <int kStrips, int kTiles>
__device__ inline void SetZero(float (&sum)[kStrips][kTiles][4]) {
#pragma unroll
  for (int i = 0; i < kStrips; ++i) {
#pragma unroll
    for (int n = 0; n < kTiles; ++n) sum[i][n][0] = sum[i][n][1] = sum[i][n][2] = sum[i][n][3] = 0;
  }
}

/// The row of a tile that this lane names to LoadMatrices for an A operand, 16 rows x 16 columns; to
/// LoadMatricesTransposed for two B operands, 16 rows x (8 + 8) columns.
template <int kWidth, typename T>
__device__ inline T* LaneByRows(T* tile) {
  const int lane = threadIdx.x % kWarp;
  return tile + lane % 16 * kTileStride<kWidth> + lane / 16 * 8;
}
/// The same to LoadMatrices for two B operands that are transposed rows, (8 + 8) rows x 16 columns.
template <int kWidth, typename T>
__device__ inline T* LaneByColumns(T* tile) {
  const int lane = threadIdx.x % kWarp;
  return tile + (lane / 16 * 8 + lane % 8) * kTileStride<kWidth> + lane / 8 % 2 * 8;
}

/// scores [16 kStrips, 8 kTiles] = own rows . other rows, over kWidth. own: LaneByRows of the warp's first row; other:
/// LaneByColumns of the first of 8 kTiles rows.
template <int kWidth, int kStrips, int kTiles>
__device__ inline void MultiplyRows(const bf16* own, const bf16* other, float (&scores)[kStrips][kTiles][4]) {
  static_assert(kTiles % 2 == 0);
  SetZero(scores);
#pragma unroll
  for (int k = 0; k < kWidth; k += 16) {
    uint32_t a[kStrips][4];
#pragma unroll
    for (int i = 0; i < kStrips; ++i) LoadMatrices(a[i], own + 16 * i * kTileStride<kWidth> + k);
#pragma unroll
    for (int n = 0; n < kTiles; n += 2) {
      uint32_t b[4];
      LoadMatrices(b, other + 8 * n * kTileStride<kWidth> + k);
#pragma unroll
      for (int i = 0; i < kStrips; ++i) {
        MmaBf16(scores[i][n], a[i], b[0], b[1]);
        MmaBf16(scores[i][n + 1], a[i], b[2], b[3]);
      }
    }
  }
}

/// sum [16 kStrips, kWidth] += weights [16 kStrips, 8 kTiles] other [8 kTiles, kWidth], weights rounded to bf16. other:
/// LaneByRows of the first of 8 kTiles rows.
template <int kWidth, int kStrips, int kTiles>
__device__ inline void AddWeightedRows(const float (&weights)[kStrips][kTiles][4], const bf16* other,
                                       float (&sum)[kStrips][kWidth / 8][4]) {
  static_assert(kTiles % 2 == 0);
#pragma unroll
  for (int k = 0; k < kTiles; k += 2) {
    uint32_t a[kStrips][4];
#pragma unroll
    for (int i = 0; i < kStrips; ++i) {
#pragma unroll
      for (int e = 0; e < 4; ++e)
        a[i][e] = PackBf16(weights[i][k + e / 2][e % 2 * 2], weights[i][k + e / 2][e % 2 * 2 + 1]);
    }
#pragma unroll
    for (int n = 0; n < kWidth / 8; n += 2) {
      uint32_t b[4];
      LoadMatricesTransposed(b, other + 8 * k * kTileStride<kWidth> + 8 * n);
#pragma unroll
      for (int i = 0; i < kStrips; ++i) {
        MmaBf16(sum[i][n], a[i], b[0], b[1]);
        MmaBf16(sum[i][n + 1], a[i], b[2], b[3]);
      }
    }
  }
}

/// scores [query][key] become `value` where a query does not see a key. seen: of the warp's first query; key: of the
/// first column.
template <int kStrips, int kTiles>
__device__ inline void HideUnseenKeys(const KeyRange* seen, int key, float value,
                                      float (&scores)[kStrips][kTiles][4]) {
  const int lane = threadIdx.x % kWarp;
#pragma unroll
  for (int i = 0; i < kStrips; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const KeyRange range = seen[16 * i + 8 * half + lane / 4];
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          if (!range.Has(key + 8 * n + lane % 4 * 2 + e)) scores[i][n][2 * half + e] = value;
        }
      }
    }
  }
}

}  // namespace metp::cuda
