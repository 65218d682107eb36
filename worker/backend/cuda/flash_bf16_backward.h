#pragma once

// What the two bf16 backward kernels are made of (flash_bf16_backward.cu): arguments, the walk over query tiles, and
// the steps between the products, element by element.

#include <cuda_runtime.h>

#include <climits>
#include <cmath>
#include <cstdint>

#include "worker/backend/cuda/device_code.h"
#include "worker/backend/cuda/flash_bf16_products.h"
#include "worker/backend/cuda/flash_bf16_tiles.h"
#include "worker/backend/cuda/flash_range.h"
#include "worker/backend/cuda/tensor_core.h"

namespace metp::cuda {

struct BackwardArguments {
  Bf16Rows q, k, v, d_o;
  const float *lse = nullptr, *delta = nullptr;  // [nq, heads]
  int64_t lse_stride = 0, delta_stride = 0;
  F32Sums dq, dk, dv;
  FlashMask mask;
  const TileRange* ranges = nullptr;  // of the query tiles that the key kernel walks over
  int heads = 0, kv_heads = 0, d = 0;
  float scale = 0;
};

/// Of one query row: P = 2^(scale log2 e S - shift).
struct alignas(8) RowTerms {
  float shift, delta;
};

/// Of no row, and where lse is -inf: shift is +inf, P and so every gradient zero.
__device__ inline RowTerms TermsOf(const BackwardArguments& a, int64_t row, int head) {
  if (row >= a.mask.queries) return {INFINITY, 0.0f};
  const float lse = a.lse[row * a.lse_stride + head];
  return {lse == -INFINITY ? INFINITY : lse * kLog2E, a.delta[row * a.delta_stride + head]};
}

/// A warp owns 16 kStrips rows; the others come in tiles of kOther, whose scores are in registers kAtOnce at a time.
/// kBlocks of threads for which registers of a multiprocessor must suffice.
template <int kWidth, int kWarps, int kStrips_, int kOther_, int kAtOnce_, int kBlocks_>
struct BackwardTiles {
  static constexpr int kThreads = kWarps * kWarp, kStrips = kStrips_;
  static constexpr int kOwn = kWarps * kStrips * 16, kOther = kOther_, kAtOnce = kAtOnce_;
  static constexpr int kBlocks = kBlocks_;
  static constexpr int kOwnElements = kTileElements<kWidth, kOwn>;
  static constexpr int kOtherElements = kTileElements<kWidth, kOther>;
  static constexpr size_t kTileBytes = (2 * kOwnElements + 4 * kOtherElements) * sizeof(bf16);

  static __device__ int WarpRow() { return threadIdx.x / kWarp * kStrips * 16; }
};

/// What the kernels need of the rows of a query tile.
template <int kRows>
struct QueryRows {
  RowTerms terms[kRows];
  KeyRange seen[kRows];
};

/// Query tiles that see something of a key tile, and the end of the query heads that share its head. In shared memory:
/// of registers the kernel is short.
struct QuerySpan {
  int first, last, head_end;
};

/// The pairs of a query head and a query tile that see something of keys [key, key + keys), heads in the outer loop.
class QueryTiles {
 public:
  /// All 32 lanes of a warp call it; thread 0 sets `span`.
  __device__ QueryTiles(const BackwardArguments& a, int tiles, int key, int keys, QuerySpan* span)
      : span_(span), key_(key), keys_(keys) {
    int first = INT_MAX, last = -1;
    for (int i = threadIdx.x % kWarp; i < tiles; i += kWarp) {
      if (!a.ranges[i].Sees(key_, keys_)) continue;
      first = i < first ? i : first;
      last = i > last ? i : last;
    }
#pragma unroll
    for (int lane = kWarp / 2; lane > 0; lane /= 2) {
      const int other_first = __shfl_xor_sync(kAllLanes, first, lane);
      const int other_last = __shfl_xor_sync(kAllLanes, last, lane);
      first = other_first < first ? other_first : first;
      last = other_last > last ? other_last : last;
    }
    // Heads x with x * kv_heads / heads = blockIdx.y.
    const int kv_head = blockIdx.y;
    const int head_end = ((kv_head + 1) * a.heads + a.kv_heads - 1) / a.kv_heads;
    head = (kv_head * a.heads + a.kv_heads - 1) / a.kv_heads;
    tile = first;
    more = last >= 0 && head < head_end;
    if (threadIdx.x == 0) *span = {first, last, head_end};
  }

  __device__ bool SeesAll(const BackwardArguments& a) const { return a.ranges[tile].SeesAll(key_, keys_); }
  /// After a barrier.
  __device__ void Next(const BackwardArguments& a) {
    do {
      if (tile++ == span_->last) {
        tile = span_->first;
        ++head;
      }
    } while (!a.ranges[tile].Sees(key_, keys_));
    more = head < span_->head_end;
  }

  int head, tile;
  bool more;  // there is such a pair, this one

 private:
  const QuerySpan* span_;
  int key_, keys_;
};

/// scores [key][query] become P^T. query: of the tile's rows, the first column; key: the warp's first row; all: every
/// row of the tile sees every key that the block owns.
template <int kStrips, int kTiles, int kRows>
__device__ inline void WeighByQueries(const QueryRows<kRows>& rows, int query, bool all, int key,
                                      float scale_log2, float (&scores)[kStrips][kTiles][4]) {
  const int lane = threadIdx.x % kWarp;
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int column = query + 8 * n + lane % 4 * 2 + e;
      const float shift = rows.terms[column].shift;
#pragma unroll
      for (int i = 0; i < kStrips; ++i) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float& x = scores[i][n][2 * half + e];
          x = Exp2(fmaf(x, scale_log2, -shift));
        }
      }
      if (all) continue;
      const KeyRange seen = rows.seen[column];
#pragma unroll
      for (int i = 0; i < kStrips; ++i) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          if (!seen.Has(key + 16 * i + 8 * half + lane / 4)) scores[i][n][2 * half + e] = 0;
        }
      }
    }
  }
}

/// weights, P^T, become dS^T / scale.
template <int kStrips, int kTiles, int kRows>
__device__ inline void DifferByQueries(const QueryRows<kRows>& rows, int query,
                                       const float (&dp)[kStrips][kTiles][4],
                                       float (&weights)[kStrips][kTiles][4]) {
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const float delta = rows.terms[query + 8 * n + threadIdx.x % 4 * 2 + e].delta;
#pragma unroll
      for (int i = 0; i < kStrips; ++i) {
#pragma unroll
        for (int half = 0; half < 2; ++half) weights[i][n][2 * half + e] *= dp[i][n][2 * half + e] - delta;
      }
    }
  }
}

/// scores [query][key] become P where every key is seen. terms: of the warp's first row.
template <int kStrips, int kTiles>
__device__ inline void WeighByRows(const RowTerms* terms, float scale_log2,
                                   float (&scores)[kStrips][kTiles][4]) {
#pragma unroll
  for (int i = 0; i < kStrips; ++i) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float shift = terms[16 * i + 8 * (e / 2) + threadIdx.x % kWarp / 4].shift;
#pragma unroll
      for (int n = 0; n < kTiles; ++n) scores[i][n][e] = Exp2(fmaf(scores[i][n][e], scale_log2, -shift));
    }
  }
}

/// weights, P, become dS / scale.
template <int kStrips, int kTiles>
__device__ inline void DifferByRows(const RowTerms* terms, const float (&dp)[kStrips][kTiles][4],
                                    float (&weights)[kStrips][kTiles][4]) {
#pragma unroll
  for (int i = 0; i < kStrips; ++i) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float delta = terms[16 * i + 8 * (e / 2) + threadIdx.x % kWarp / 4].delta;
#pragma unroll
      for (int n = 0; n < kTiles; ++n) weights[i][n][e] *= dp[i][n][e] - delta;
    }
  }
}

}  // namespace metp::cuda
