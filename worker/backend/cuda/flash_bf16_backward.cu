// Fused attention in bf16 on the tensor cores, backward (FlashAttention-2, arXiv 2307.08691, algorithm 2). With P =
// e^(scale S - lse), S = Q K^T, lse and delta over all keys:
//   dP = dO V^T   dS = P (dP - delta) scale   dV += P^T dO   dK += dS^T Q   dQ += dS K
// Every sum is taken by one block of threads in a fixed order: one kernel owns tiles of keys and gives dK and dV,
// another owns tiles of query rows and gives dQ. Both compute S and dP: two products of seven more than with sums in
// memory that many blocks add to, in no order.
//
// The two are alike: a block keeps two tiles of the rows it owns (K, V or Q, dO) in shared memory, the warps' A
// operands, and walks over pairs of tiles of the others (Q, dO or K, V), of which the next is on its way while one is
// used. Scores are owned rows x other rows, S^T in the first kernel; so P^T and dS^T, or dS, lie in registers as A
// operands of the second products, and the sums stay in registers. All products: mma.m16n8k16, fragments by ldmatrix,
// of the other rows by ldmatrix.trans in second products, for which P and dS / scale are rounded to bf16.
//
// Owned x other rows: 128 x 64 up to width 128, 128 x 32 at 192, 64 x 32 at 256, where dK and dV take a launch each.
// Shared memory: two tiles of owned rows, then two stages of two tiles of others, rows of width + 8, then what of lse,
// delta and the mask belongs to the query rows. 74 KiB at width 64 (two blocks per multiprocessor), 138 KiB at 128.

#include <algorithm>

#include "worker/backend/cuda/flash_bf16_backward.h"
#include "worker/backend/cuda/flash_bf16_products.h"
#include "worker/backend/cuda/flash_bf16_tiles.h"
#include "worker/backend/cuda/flash_range.h"
#include "worker/backend/cuda/kernels.h"
#include "worker/backend/cuda/launch.h"

namespace metp::cuda {
namespace {

// --- Key tiles -----------------------------------------------------------------------------------------------------

template <int kWidth>
struct KeyKernelTiles;
template <>
struct KeyKernelTiles<32> : BackwardTiles<32, 4, 2, 64, 32, 2> {};
template <>
struct KeyKernelTiles<64> : BackwardTiles<64, 4, 2, 64, 32, 2> {};
template <>
struct KeyKernelTiles<128> : BackwardTiles<128, 8, 1, 64, 64, 1> {};
template <>
struct KeyKernelTiles<192> : BackwardTiles<192, 8, 1, 32, 16, 1> {};
template <>
struct KeyKernelTiles<256> : BackwardTiles<256, 4, 1, 32, 32, 1> {};

template <int kWidth>
constexpr size_t KeyKernelBytes() {
  using Tiles = KeyKernelTiles<kWidth>;
  constexpr size_t kBytes = Tiles::kTileBytes + 2 * sizeof(QueryRows<Tiles::kOther>) + sizeof(QuerySpan);
  static_assert(kBytes <= kMaxSharedBytes);
  return kBytes;
}

/// Which gradients one launch gives: where registers do not hold both sums, each has one of its own.
enum class Gives { kBoth, kValues, kKeys };

template <int kWidth, bool kPieces, Gives kGives>
__global__ void __launch_bounds__(KeyKernelTiles<kWidth>::kThreads, KeyKernelTiles<kWidth>::kBlocks)
    FlashBackwardKeys(const BackwardArguments a) {
  using Tiles = KeyKernelTiles<kWidth>;
  constexpr int kStrips = Tiles::kStrips, kQueries = Tiles::kOther, kThreads = Tiles::kThreads;
  constexpr int kAtOnce = Tiles::kAtOnce;
  static_assert(kQueries <= kThreads);
  bf16* const keys = Shared<bf16>();
  bf16* const values = keys + Tiles::kOwnElements;
  bf16* const others = values + Tiles::kOwnElements;  // [2 stages][Q, dO]
  auto* const rows = reinterpret_cast<QueryRows<kQueries>*>(others + 4 * Tiles::kOtherElements);

  const int first_key = blockIdx.x * Tiles::kOwn, kv_column = blockIdx.y * a.d;
  QueryTiles at(a, static_cast<int>((a.mask.queries + kQueries - 1) / kQueries), first_key, Tiles::kOwn,
                reinterpret_cast<QuerySpan*>(rows + 2));
  if (!at.more) return;

  const auto start = [&](int stage) {
    const int64_t row = int64_t{at.tile} * kQueries, column = int64_t{at.head} * a.d;
    bf16* const to = others + 2 * stage * Tiles::kOtherElements;
    StartTile<kWidth, kQueries, kThreads, kPieces>(a.q, a.q.At(row, column), a.mask.queries - row, a.d, to);
    StartTile<kWidth, kQueries, kThreads, kPieces>(a.d_o, a.d_o.At(row, column), a.mask.queries - row, a.d,
                                                   to + Tiles::kOtherElements);
    CopyAsyncCommit();
  };
  StartTile<kWidth, Tiles::kOwn, kThreads, kPieces>(a.k, a.k.At(first_key, kv_column),
                                                    a.mask.keys - first_key, a.d, keys);
  if constexpr (kGives != Gives::kValues) {
    StartTile<kWidth, Tiles::kOwn, kThreads, kPieces>(a.v, a.v.At(first_key, kv_column),
                                                      a.mask.keys - first_key, a.d, values);
  }
  start(0);
  if (threadIdx.x < kQueries) {
    const int64_t row = int64_t{at.tile} * kQueries + threadIdx.x;
    rows[0].terms[threadIdx.x] = TermsOf(a, row, at.head);
    rows[0].seen[threadIdx.x] = SeenByRow(a.mask, row);
  }

  const bf16* const own_keys = LaneByRows<kWidth>(keys + Tiles::WarpRow() * kTileStride<kWidth>);
  const bf16* const own_values = own_keys + Tiles::kOwnElements;
  float dk[kGives == Gives::kValues ? 1 : kStrips][kWidth / 8][4];
  float dv[kGives == Gives::kKeys ? 1 : kStrips][kWidth / 8][4];
  SetZero(dk);
  SetZero(dv);
  for (int stage = 0;; stage ^= 1) {
    CopyAsyncWait<0>();
    __syncthreads();  // this stage is there, nobody needs the other
    const bool all = at.SeesAll(a);
    at.Next(a);
    RowTerms next_terms;
    KeyRange next_seen;
    if (at.more) {
      start(stage ^ 1);
      const int64_t row = int64_t{at.tile} * kQueries + threadIdx.x;
      if (threadIdx.x < kQueries) {
        next_terms = TermsOf(a, row, at.head);
        next_seen = SeenByRow(a.mask, row);
      }
    }
    const bf16* const q = others + 2 * stage * Tiles::kOtherElements;
    const bf16* const d_o = q + Tiles::kOtherElements;
#pragma unroll 1
    for (int query = 0; query < kQueries; query += kAtOnce) {
      float weights[kStrips][kAtOnce / 8][4];
      MultiplyRows<kWidth>(own_keys, LaneByColumns<kWidth>(q + query * kTileStride<kWidth>), weights);
      if (at.more && query == 0 && threadIdx.x < kQueries) {  // they had the time of a product to come
        rows[stage ^ 1].terms[threadIdx.x] = next_terms;
        rows[stage ^ 1].seen[threadIdx.x] = next_seen;
      }
      WeighByQueries(rows[stage], query, all, first_key + Tiles::WarpRow(), a.scale * kLog2E, weights);
      if constexpr (kGives != Gives::kKeys) {
        AddWeightedRows<kWidth>(weights, LaneByRows<kWidth>(d_o + query * kTileStride<kWidth>), dv);
      }
      if constexpr (kGives != Gives::kValues) {
        float dp[kStrips][kAtOnce / 8][4];
        MultiplyRows<kWidth>(own_values, LaneByColumns<kWidth>(d_o + query * kTileStride<kWidth>), dp);
        DifferByQueries(rows[stage], query, dp, weights);
        AddWeightedRows<kWidth>(weights, LaneByRows<kWidth>(q + query * kTileStride<kWidth>), dk);
      }
    }
    if (!at.more) break;
  }
  const int row = first_key + Tiles::WarpRow();
  if constexpr (kGives != Gives::kValues) AddRows(dk, a.scale, row, kv_column, a.d, a.dk);
  if constexpr (kGives != Gives::kKeys) AddRows(dv, 1.0f, row, kv_column, a.d, a.dv);
}

// --- Query tiles ---------------------------------------------------------------------------------------------------

template <int kWidth>
struct QueryKernelTiles;
template <>
struct QueryKernelTiles<32> : BackwardTiles<32, 4, 2, 64, 32, 2> {};
template <>
struct QueryKernelTiles<64> : BackwardTiles<64, 4, 2, 64, 32, 2> {};
template <>
struct QueryKernelTiles<128> : BackwardTiles<128, 8, 1, 64, 64, 1> {};
template <>
struct QueryKernelTiles<192> : BackwardTiles<192, 8, 1, 32, 32, 1> {};
template <>
struct QueryKernelTiles<256> : BackwardTiles<256, 4, 1, 32, 32, 1> {};

template <int kWidth>
constexpr size_t QueryKernelBytes() {
  using Tiles = QueryKernelTiles<kWidth>;
  constexpr size_t kBytes = Tiles::kTileBytes + sizeof(QueryRows<Tiles::kOwn>);
  static_assert(kBytes <= kMaxSharedBytes);
  return kBytes;
}

template <int kWidth, bool kPieces>
__global__ void __launch_bounds__(QueryKernelTiles<kWidth>::kThreads, QueryKernelTiles<kWidth>::kBlocks)
    FlashBackwardQueries(const BackwardArguments a) {
  using Tiles = QueryKernelTiles<kWidth>;
  constexpr int kStrips = Tiles::kStrips, kKeys = Tiles::kOther, kThreads = Tiles::kThreads;
  constexpr int kAtOnce = Tiles::kAtOnce;
  static_assert(Tiles::kOwn <= kThreads);
  bf16* const queries = Shared<bf16>();
  bf16* const others = queries + 2 * Tiles::kOwnElements;  // [2 stages][K, V]
  auto& rows = *reinterpret_cast<QueryRows<Tiles::kOwn>*>(others + 4 * Tiles::kOtherElements);

  // The last tiles of a causal block see most: they begin first.
  const int64_t first_row = int64_t{gridDim.x - 1 - blockIdx.x} * Tiles::kOwn;
  const TileRange range = SeenByTile(a.mask, first_row, Tiles::kOwn);
  if (range.last == 0) return;
  const int head = blockIdx.y;
  const int64_t column = int64_t{head} * a.d;
  const int64_t kv_column = int64_t{head} * a.kv_heads / a.heads * a.d;

  const auto start = [&](int key, int stage) {
    bf16* const to = others + 2 * stage * Tiles::kOtherElements;
    StartTile<kWidth, kKeys, kThreads, kPieces>(a.k, a.k.At(key, kv_column), range.last - key, a.d, to);
    StartTile<kWidth, kKeys, kThreads, kPieces>(a.v, a.v.At(key, kv_column), range.last - key, a.d,
                                                to + Tiles::kOtherElements);
    CopyAsyncCommit();
  };
  StartTile<kWidth, Tiles::kOwn, kThreads, kPieces>(a.q, a.q.At(first_row, column),
                                                    a.mask.queries - first_row, a.d, queries);
  StartTile<kWidth, Tiles::kOwn, kThreads, kPieces>(
      a.d_o, a.d_o.At(first_row, column), a.mask.queries - first_row, a.d, queries + Tiles::kOwnElements);
  start(range.first, 0);
  if (threadIdx.x < Tiles::kOwn) {
    rows.terms[threadIdx.x] = TermsOf(a, first_row + threadIdx.x, head);
    rows.seen[threadIdx.x] = SeenByRow(a.mask, first_row + threadIdx.x);
  }

  const bf16* const own_q = LaneByRows<kWidth>(queries + Tiles::WarpRow() * kTileStride<kWidth>);
  const bf16* const own_d_o = own_q + Tiles::kOwnElements;
  const RowTerms* const terms = rows.terms + Tiles::WarpRow();
  float dq[kStrips][kWidth / 8][4];
  SetZero(dq);
  int stage = 0;
  for (int tile = range.first; tile < range.last; tile += kKeys, stage ^= 1) {
    CopyAsyncWait<0>();
    __syncthreads();  // this stage is there, nobody needs the other
    if (tile + kKeys < range.last) start(tile + kKeys, stage ^ 1);
    const bool all = range.SeesAll(tile, kKeys);
    const bf16* const k = others + 2 * stage * Tiles::kOtherElements;
    const bf16* const v = k + Tiles::kOtherElements;
#pragma unroll 1
    for (int key = 0; key < kKeys; key += kAtOnce) {
      float weights[kStrips][kAtOnce / 8][4], dp[kStrips][kAtOnce / 8][4];
      MultiplyRows<kWidth>(own_q, LaneByColumns<kWidth>(k + key * kTileStride<kWidth>), weights);
      WeighByRows(terms, a.scale * kLog2E, weights);
      if (!all) HideUnseenKeys(rows.seen + Tiles::WarpRow(), tile + key, 0.0f, weights);
      MultiplyRows<kWidth>(own_d_o, LaneByColumns<kWidth>(v + key * kTileStride<kWidth>), dp);
      DifferByRows(terms, dp, weights);
      AddWeightedRows<kWidth>(weights, LaneByRows<kWidth>(k + key * kTileStride<kWidth>), dq);
    }
  }
  AddRows(dq, a.scale, first_row + Tiles::WarpRow(), column, a.d, a.dq);
}

// --- Launchers -----------------------------------------------------------------------------------------------------

template <int kWidth, bool kPieces>
void LaunchKernels(cudaStream_t stream, Scratch scratch, BackwardArguments a) {
  using KeySizes = KeyKernelTiles<kWidth>;
  using QuerySizes = QueryKernelTiles<kWidth>;
  a.ranges = LaunchFindTileRanges<KeySizes::kOther>(stream, scratch, a.mask);
  const dim3 key_grid(static_cast<unsigned>(CeilDiv(a.mask.keys, KeySizes::kOwn)),
                      static_cast<unsigned>(a.kv_heads));
  const auto launch_keys = [&](auto kernel) {
    Launch(stream, key_grid, KeySizes::kThreads, KeyKernelBytes<kWidth>(), kernel, a);
  };
  if constexpr (kWidth <= 192) {
    launch_keys(FlashBackwardKeys<kWidth, kPieces, Gives::kBoth>);
  } else {
    launch_keys(FlashBackwardKeys<kWidth, kPieces, Gives::kValues>);
    launch_keys(FlashBackwardKeys<kWidth, kPieces, Gives::kKeys>);
  }
  const dim3 query_grid(static_cast<unsigned>(CeilDiv(a.mask.queries, QuerySizes::kOwn)),
                        static_cast<unsigned>(a.heads));
  Launch(stream, query_grid, QuerySizes::kThreads, QueryKernelBytes<kWidth>(),
         FlashBackwardQueries<kWidth, kPieces>, a);
}

/// Query rows whose ranges do not fit into the scratch memory are left to further launches.
template <int kWidth>
void LaunchBackward(cudaStream_t stream, Scratch scratch, const AttentionBlock& block, const Matrix& d_o,
                    const Matrix& lse, const Matrix& delta, const Matrix& dq, const Matrix& dk,
                    const Matrix& dv) {
  const int d = block.head_dim;
  const int64_t most = RowsWithRangesIn<KeyKernelTiles<kWidth>::kOther>(scratch);
  for (int64_t row = 0; row < block.q.rows; row += most) {
    const int64_t end = std::min(block.q.rows, row + most);
    AttentionBlock rows = block;
    rows.q = block.q.Rows(row, end);
    rows.visible = block.visible.Rows(row, end);
    BackwardArguments a;
    a.q = Bf16RowsOf(rows.q, d);
    a.k = Bf16RowsOf(block.k, d);
    a.v = Bf16RowsOf(block.v, d);
    a.d_o = Bf16RowsOf(d_o.Rows(row, end), d);
    a.lse = lse.Rows(row, end).f32();
    a.lse_stride = lse.stride;
    a.delta = delta.Rows(row, end).f32();
    a.delta_stride = delta.stride;
    a.dq = F32SumsOf(dq.Rows(row, end), d);
    a.dk = F32SumsOf(dk, d);
    a.dv = F32SumsOf(dv, d);
    a.mask = MaskOf(rows);
    a.heads = block.heads;
    a.kv_heads = block.kv_heads;
    a.d = d;
    a.scale = block.scale;
    if (a.q.pieces && a.k.pieces && a.v.pieces && a.d_o.pieces) {
      LaunchKernels<kWidth, true>(stream, scratch, a);
    } else {
      LaunchKernels<kWidth, false>(stream, scratch, a);
    }
  }
}

}  // namespace

void FlashBackwardBf16(cudaStream_t stream, Scratch scratch, const AttentionBlock& block, const Matrix& d_o,
                       const Matrix& lse, const Matrix& delta, const Matrix& dq, const Matrix& dk,
                       const Matrix& dv) {
  if (block.q.empty() || block.k.empty()) return;
  const auto launch = block.head_dim <= 32    ? LaunchBackward<32>
                      : block.head_dim <= 64  ? LaunchBackward<64>
                      : block.head_dim <= 128 ? LaunchBackward<128>
                      : block.head_dim <= 192 ? LaunchBackward<192>
                                              : LaunchBackward<256>;
  launch(stream, scratch, block, d_o, lse, delta, dq, dk, dv);
}

}  // namespace metp::cuda
