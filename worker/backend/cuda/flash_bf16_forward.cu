// Fused attention in bf16 on the tensor cores, forward (FlashAttention-2, arXiv 2307.08691, algorithm 1).
//
// One block of threads per (tile of 128 query rows, query head). It walks the tiles of 64 keys that its rows see:
//   S = Q K^T        mma.m16n8k16, Q and K by ldmatrix
//   P = 2^(S scale log2 e - running maximum), in registers; sums and O are scaled where the maximum grew
//   O += P V         mma.m16n8k16, P from registers, V by ldmatrix.trans
// Up to width 128: 4 warps of 32 rows (each fragment of K and V serves two products); beyond: 8 warps of 16.
//
// Shared memory: Q [128], K [64], V [64] rows of width + 8, then the key ranges of the query rows. K and V have one
// tile each: V is on its way while S is computed, the next K while P V is. 69 KiB at width 128, two blocks per
// multiprocessor.

#include <cmath>

#include "worker/backend/cuda/flash_bf16_products.h"
#include "worker/backend/cuda/flash_bf16_tiles.h"
#include "worker/backend/cuda/flash_range.h"
#include "worker/backend/cuda/kernels.h"
#include "worker/backend/cuda/launch.h"

namespace metp::cuda {
namespace {

struct ForwardArguments {
  Bf16Rows q, k, v;
  F32Sums o;
  float* lse = nullptr;  // [nq, heads]
  int64_t lse_stride = 0;
  FlashMask mask;
  int heads = 0, kv_heads = 0, d = 0;
  float scale = 0;
};

template <int kWidth>
struct ForwardTiles {
  static constexpr int kWarps = kWidth <= 128 ? 4 : 8, kThreads = kWarps * kWarp;
  static constexpr int kStrips = kWidth <= 128 ? 2 : 1;
  static constexpr int kQueries = kWarps * kStrips * 16, kKeys = 64;
  static constexpr int kQueryElements = kTileElements<kWidth, kQueries>;
  static constexpr int kKeyElements = kTileElements<kWidth, kKeys>;
  static constexpr size_t kSharedBytes =
      (kQueryElements + 2 * kKeyElements) * sizeof(bf16) + kQueries * sizeof(KeyRange) + sizeof(TileRange);
  static_assert(kSharedBytes <= kMaxSharedBytes);
};

/// Of the rows that a lane has: [strip][half].
template <int kStrips>
struct RowState {
  float max[kStrips][2];  // of raw scores: scale is positive
  float sum[kStrips][2];  // of 2^(..), only the lane's own columns
};

/// scores become P; state takes them in; `fade` is what was summed so far must be scaled by. True where any is not 1.
template <int kStrips, int kTiles>
__device__ inline bool TakeIn(float scale_log2, float (&scores)[kStrips][kTiles][4], RowState<kStrips>& state,
                              float (&fade)[kStrips][2]) {
  bool grew = false;
#pragma unroll
  for (int i = 0; i < kStrips; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      // fmaxf passes NaN by; a NaN then comes back through its power of two.
      float max = state.max[i][half];
#pragma unroll
      for (int n = 0; n < kTiles; ++n)
        max = fmaxf(max, fmaxf(scores[i][n][2 * half], scores[i][n][2 * half + 1]));
      max = fmaxf(max, __shfl_xor_sync(kAllLanes, max, 1));
      max = fmaxf(max, __shfl_xor_sync(kAllLanes, max, 2));
      const float shift = max == -INFINITY ? 0.0f : max * scale_log2;  // nothing seen yet: 2^-inf is 0
      fade[i][half] = Exp2(state.max[i][half] * scale_log2 - shift);
      grew |= state.max[i][half] != max;
      state.max[i][half] = max;
      float sum = 0;
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; ++e) {
          scores[i][n][e] = Exp2(fmaf(scores[i][n][e], scale_log2, -shift));
          sum += scores[i][n][e];
        }
      }
      state.sum[i][half] = state.sum[i][half] * fade[i][half] + sum;
    }
  }
  return grew;
}

template <int kStrips, int kTiles>
__device__ inline void ScaleRows(const float (&factor)[kStrips][2], float (&sum)[kStrips][kTiles][4]) {
#pragma unroll
  for (int i = 0; i < kStrips; ++i) {
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) sum[i][n][e] *= factor[i][e / 2];
    }
  }
}

/// Merges the warp's rows, from `row` on, into o and lse: lse' = log(e^lse + e^block), o' = o e^(lse - lse') + O / sum
/// e^(block - lse'). A row without a sum saw no key.
template <int kStrips, int kTiles>
__device__ inline void MergeBlock(const ForwardArguments& a, int64_t row, int head,
                                  const float (&o)[kStrips][kTiles][4], RowState<kStrips>& state) {
  const int lane = threadIdx.x % kWarp;
  float before[kStrips][2];
#pragma unroll
  for (int i = 0; i < kStrips; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float& sum = state.sum[i][half];
      sum += __shfl_xor_sync(kAllLanes, sum, 1);
      sum += __shfl_xor_sync(kAllLanes, sum, 2);
      const int64_t r = row + 16 * i + 8 * half + lane / 4;
      before[i][half] = r < a.o.rows ? a.lse[r * a.lse_stride + head] : -INFINITY;
    }
  }
  __syncwarp();  // all four lanes of a row have read its lse
#pragma unroll
  for (int i = 0; i < kStrips; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int64_t r = row + 16 * i + 8 * half + lane / 4;
      const float sum = state.sum[i][half];
      if (r >= a.o.rows || sum == 0) continue;
      const float old = before[i][half], block = state.max[i][half] * a.scale + logf(sum);
      const float merged = fmaxf(old, block) + log1pf(expf(-fabsf(old - block)));
      if (lane % 4 == 0) a.lse[r * a.lse_stride + head] = merged;
      MergeRow(o[i], half, expf(block - merged) / sum, expf(old - merged), a.o.pairs, a.d,
               a.o.At(r, int64_t{head} * a.d));
    }
  }
}

template <int kWidth, bool kPieces>
__global__ void __launch_bounds__(ForwardTiles<kWidth>::kThreads) FlashForward(const ForwardArguments a) {
  using Tiles = ForwardTiles<kWidth>;
  constexpr int kStrips = Tiles::kStrips, kKeys = Tiles::kKeys, kThreads = Tiles::kThreads;
  bf16* const queries = Shared<bf16>();
  bf16* const keys = queries + Tiles::kQueryElements;
  bf16* const values = keys + Tiles::kKeyElements;
  KeyRange* const seen = reinterpret_cast<KeyRange*>(values + Tiles::kKeyElements);
  TileRange* const all =
      reinterpret_cast<TileRange*>(seen + Tiles::kQueries);  // of which registers are short

  // The last tiles of a causal block see most: they begin first.
  const int64_t first_row = int64_t{gridDim.x - 1 - blockIdx.x} * Tiles::kQueries;
  const TileRange range = SeenByTile(a.mask, first_row, Tiles::kQueries);
  if (range.last == 0) return;
  const int head = blockIdx.y;
  const int64_t column = int64_t{head} * a.d;
  const int64_t kv_column = int64_t{head} * a.kv_heads / a.heads * a.d;
  const int warp_row = threadIdx.x / kWarp * kStrips * 16;

  StartTile<kWidth, Tiles::kQueries, kThreads, kPieces>(a.q, a.q.At(first_row, column),
                                                        a.mask.queries - first_row, a.d, queries);
  StartTile<kWidth, kKeys, kThreads, kPieces>(a.k, a.k.At(range.first, kv_column), range.last - range.first,
                                              a.d, keys);
  CopyAsyncCommit();
  if (threadIdx.x == 0) *all = range;
  if (threadIdx.x < Tiles::kQueries) seen[threadIdx.x] = SeenByRow(a.mask, first_row + threadIdx.x);

  const bf16* const own = LaneByRows<kWidth>(queries + warp_row * kTileStride<kWidth>);
  RowState<kStrips> state;
  float o[kStrips][kWidth / 8][4];
  SetZero(o);
#pragma unroll
  for (int i = 0; i < kStrips; ++i) {
    state.max[i][0] = state.max[i][1] = -INFINITY;
    state.sum[i][0] = state.sum[i][1] = 0;
  }

  for (int key = range.first; key < range.last; key += kKeys) {
    CopyAsyncWait<0>();
    __syncthreads();  // K is there, nobody needs the last V
    StartTile<kWidth, kKeys, kThreads, kPieces>(a.v, a.v.At(key, kv_column), range.last - key, a.d, values);
    CopyAsyncCommit();
    float scores[kStrips][kKeys / 8][4];
    MultiplyRows<kWidth>(own, LaneByColumns<kWidth>(keys), scores);
    if (!all->SeesAll(key, kKeys)) HideUnseenKeys(seen + warp_row, key, -INFINITY, scores);

    CopyAsyncWait<0>();
    __syncthreads();  // V is there, nobody needs this K
    if (key + kKeys < range.last) {
      StartTile<kWidth, kKeys, kThreads, kPieces>(a.k, a.k.At(key + kKeys, kv_column),
                                                  range.last - key - kKeys, a.d, keys);
      CopyAsyncCommit();
    }
    float fade[kStrips][2];
    const bool grew = TakeIn(a.scale * kLog2E, scores, state, fade);
    if (__any_sync(kAllLanes, grew)) ScaleRows(fade, o);
    AddWeightedRows<kWidth>(scores, LaneByRows<kWidth>(values), o);
  }
  MergeBlock(a, first_row + warp_row, head, o, state);
}

template <int kWidth>
void LaunchForward(cudaStream_t stream, const ForwardArguments& a) {
  using Tiles = ForwardTiles<kWidth>;
  const dim3 grid(static_cast<unsigned>(CeilDiv(a.mask.queries, Tiles::kQueries)),
                  static_cast<unsigned>(a.heads));
  const bool pieces = a.q.pieces && a.k.pieces && a.v.pieces;
  Launch(stream, grid, Tiles::kThreads, Tiles::kSharedBytes,
         pieces ? FlashForward<kWidth, true> : FlashForward<kWidth, false>, a);
}

}  // namespace

void FlashForwardBf16(cudaStream_t stream, const AttentionBlock& block, const Matrix& o, const Matrix& lse) {
  const int d = block.head_dim;
  if (block.q.empty() || block.k.empty()) return;
  const ForwardArguments a{Bf16RowsOf(block.q, d),
                           Bf16RowsOf(block.k, d),
                           Bf16RowsOf(block.v, d),
                           F32SumsOf(o, d),
                           lse.f32(),
                           lse.stride,
                           MaskOf(block),
                           block.heads,
                           block.kv_heads,
                           d,
                           block.scale};
  if (d <= 32) return LaunchForward<32>(stream, a);
  if (d <= 64) return LaunchForward<64>(stream, a);
  if (d <= 128) return LaunchForward<128>(stream, a);
  if (d <= 192) return LaunchForward<192>(stream, a);
  LaunchForward<256>(stream, a);
}

}  // namespace metp::cuda
