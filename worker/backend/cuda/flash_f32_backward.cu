// Fused attention in fp32, backward. With P = e^(scale S - lse), S = Q K^T, lse and delta over all keys:
//   dP = dO V^T   dS = P (dP - delta) scale   dV += P^T dO   dK += dS^T Q   dQ += dS K
// (FlashAttention-2, arXiv 2307.08691, algorithm 2). Every sum is taken by one block of threads in a fixed
// order: one kernel owns tiles of keys and gives dK and dV, another owns tiles of query rows and gives dQ.
// Both compute P and dS: seven products instead of five, the price of sums whose order is fixed.

#include <algorithm>
#include <cmath>

#include "worker/backend/cuda/flash_f32.h"
#include "worker/backend/cuda/flash_range.h"
#include "worker/backend/cuda/kernels.h"
#include "worker/backend/cuda/launch.h"

namespace metp::cuda {
namespace {

struct BackwardArguments {
  F32Rows q, k, v, d_o, lse, delta, dq, dk, dv;
  FlashMask mask;
  const TileRange* ranges = nullptr;  // of tiles of BackwardTiles::kOther query rows
  int heads = 0, kv_heads = 0, d = 0;
  float scale = 0;
};

// For both kernels; own rows are keys in the first, queries in the second. At most 155 KiB.
template <int kWidth>
struct BackwardTiles;
template <>
struct BackwardTiles<32> : F32Tiles<32, 128, 64, 256> {};
template <>
struct BackwardTiles<64> : F32Tiles<64, 128, 64, 256> {};
template <>
struct BackwardTiles<128> : F32Tiles<128, 64, 64, 128> {};
template <>
struct BackwardTiles<256> : F32Tiles<256, 32, 32, 128> {};

/// lse as the kernels use it: where it is -inf the row has no gradient, and e^(s - inf) = 0 says so.
__device__ inline float LseOrInfinity(const F32Rows& lse, int64_t row, int head) {
  const float x = row < lse.rows ? *lse.At(row, head) : -INFINITY;
  return x == -INFINITY ? INFINITY : x;
}
__device__ inline float DeltaOrZero(const F32Rows& delta, int64_t row, int head) {
  return row < delta.rows ? *delta.At(row, head) : 0.0f;
}

/// s becomes P, dp becomes dS, of one pair of rows.
__device__ inline void Gradient(bool seen, float scale, float lse, float delta, float& s, float& dp) {
  s = seen ? __expf(s * scale - lse) : 0.0f;
  dp = seen ? s * (dp - delta) * scale : 0.0f;
}

// --- Key tiles ---------------------------------------------------------------------------------------------

/// What a key tile's block needs of the rows of a query tile.
template <int kRows>
struct QueryStatistics {
  float lse[kRows], delta[kRows];
  KeyRange seen[kRows];

  /// By all threads of the block; there after a barrier.
  __device__ void Load(const BackwardArguments& a, int64_t row, int head) {
    for (int i = threadIdx.x; i < kRows; i += blockDim.x) {
      lse[i] = LseOrInfinity(a.lse, row + i, head);
      delta[i] = DeltaOrZero(a.delta, row + i, head);
      seen[i] = SeenByRow(a.mask, row + i);
    }
  }
};

/// The pairs of query head and query tile that have to do with a key tile, in the order in which they are
/// added up.
template <typename Tiles>
struct QueryTileWalk {
  const TileRange* ranges = nullptr;
  int64_t tiles = 0;
  int key = 0;                  // first of the key tile
  int head = 0, last_head = 0;  // of the heads that share the key tile's
  int64_t tile = -1;

  __device__ QueryTileWalk(const BackwardArguments& a, int first_key, int kv_head)
      : ranges(a.ranges),
        tiles((a.q.rows + Tiles::kOther - 1) / Tiles::kOther),
        key(first_key),
        head(FirstHead(a, kv_head)),
        last_head(FirstHead(a, kv_head + 1)) {}

  /// The first query head x with x * kv_heads / heads = kv_head.
  static __device__ int FirstHead(const BackwardArguments& a, int kv_head) {
    return static_cast<int>((static_cast<int64_t>(kv_head) * a.heads + a.kv_heads - 1) / a.kv_heads);
  }

  /// To the first pair, or the next; false when there is none left.
  __device__ bool Advance() {
    for (; head < last_head; ++head) {
      while (++tile < tiles) {
        if (ranges[tile].Sees(key, Tiles::kOwn)) return true;
      }
      tile = -1;
    }
    return false;
  }

  __device__ int64_t Row() const { return tile * Tiles::kOther; }
  __device__ bool SeesAll() const { return ranges[tile].SeesAll(key, Tiles::kOwn); }
};

template <typename Tiles>
constexpr size_t KeyTileBytes() {
  return (2 * Tiles::kOwnFloats + 2 * Tiles::kOtherFloats + Tiles::kChunkFloats) * sizeof(float) +
         sizeof(QueryStatistics<Tiles::kOther>);
}

/// s [own keys][queries] becomes P^T, dp becomes dS^T.
template <typename Tiles>
__device__ inline void KeyTileGradient(const BackwardArguments& a, const QueryTileWalk<Tiles>& at,
                                       const QueryStatistics<Tiles::kOther>& queries,
                                       typename Tiles::Scores& s, typename Tiles::Scores& dp) {
  const bool whole = at.SeesAll();
#pragma unroll
  for (int j = 0; j < Tiles::kCols; ++j) {
    const int query = Tiles::OtherRow(j);
    const float lse = queries.lse[query], delta = queries.delta[query];
    KeyRange row;
    if (!whole) row = queries.seen[query];
#pragma unroll
    for (int i = 0; i < Tiles::kRows; ++i)
      Gradient(whole || row.Has(at.key + Tiles::OwnRow(i)), a.scale, lse, delta, s[i][j], dp[i][j]);
  }
}

/// dK and dV of one key tile and key/value head per block, heads running fastest; the first key tiles, which
/// most rows under a causal mask see, first.
template <typename Tiles>
__global__ void BackwardKeyTiles(BackwardArguments a) {
  float* k = Shared<float>();                // [kOwn][kStride]
  float* v = k + Tiles::kOwnFloats;          // [kOwn][kStride]
  float* q = v + Tiles::kOwnFloats;          // [kOther][kStride]
  float* d_o = q + Tiles::kOtherFloats;      // [kOther][kStride]
  float* chunk = d_o + Tiles::kOtherFloats;  // [kOwn][kChunkStride]
  auto& queries = *reinterpret_cast<QueryStatistics<Tiles::kOther>*>(chunk + Tiles::kChunkFloats);

  const int key = static_cast<int>(blockIdx.x / a.kv_heads) * Tiles::kOwn;
  const int kv_head = static_cast<int>(blockIdx.x % a.kv_heads);
  const int64_t kv_col = static_cast<int64_t>(kv_head) * a.d;
  QueryTileWalk<Tiles> at(a, key, kv_head);
  bool more = at.Advance();
  if (!more) return;

  StartTile<Tiles, Tiles::kOwn>(a.k, key, kv_col, a.d, k);
  StartTile<Tiles, Tiles::kOwn>(a.v, key, kv_col, a.d, v);
  StartTile<Tiles, Tiles::kOther>(a.d_o, at.Row(), static_cast<int64_t>(at.head) * a.d, a.d, d_o);
  typename Tiles::Sum dk, dv;
  SetZero<Tiles>(dk);
  SetZero<Tiles>(dv);
  while (more) {
    CopyAsyncWait<0>();
    __syncthreads();  // d_o is there; q and the statistics of the tile before have been read
    StartTile<Tiles, Tiles::kOther>(a.q, at.Row(), static_cast<int64_t>(at.head) * a.d, a.d, q);
    queries.Load(a, at.Row(), at.head);
    typename Tiles::Scores s, dp;
    TileProduct<Tiles>(v, d_o, a.d, dp);
    CopyAsyncWait<0>();
    __syncthreads();  // q and the statistics are there
    TileProduct<Tiles>(k, q, a.d, s);
    KeyTileGradient<Tiles>(a, at, queries, s, dp);
    AddWeightedRows<Tiles>(s, d_o, chunk, dv);
    more = at.Advance();
    __syncthreads();  // d_o has been read
    if (more) StartTile<Tiles, Tiles::kOther>(a.d_o, at.Row(), static_cast<int64_t>(at.head) * a.d, a.d, d_o);
    AddWeightedRows<Tiles>(dp, q, chunk, dk);
  }
  AddRows<Tiles>(dk, a.dk, key, kv_col, a.d);
  AddRows<Tiles>(dv, a.dv, key, kv_col, a.d);
}

// --- Query tiles -------------------------------------------------------------------------------------------

template <typename Tiles>
constexpr size_t QueryTileBytes() {
  return (2 * Tiles::kOwnFloats + 2 * Tiles::kOtherFloats + Tiles::kChunkFloats) * sizeof(float) +
         Tiles::kOwn * sizeof(KeyRange);
}

/// What a thread needs of the query rows that it owns.
template <typename Tiles>
struct OwnStatistics {
  float lse[Tiles::kRows], delta[Tiles::kRows];

  __device__ void Load(const BackwardArguments& a, int64_t row, int head) {
#pragma unroll
    for (int i = 0; i < Tiles::kRows; ++i) {
      lse[i] = LseOrInfinity(a.lse, row + Tiles::OwnRow(i), head);
      delta[i] = DeltaOrZero(a.delta, row + Tiles::OwnRow(i), head);
    }
  }
};

/// s [own queries][keys] becomes P, dp becomes dS. The keys are those from `key` on.
template <typename Tiles>
__device__ inline void QueryTileGradient(const BackwardArguments& a, const TileRange& range,
                                         const KeyRange* seen, const OwnStatistics<Tiles>& own, int key,
                                         typename Tiles::Scores& s, typename Tiles::Scores& dp) {
  const bool whole = range.SeesAll(key, Tiles::kOther);
#pragma unroll
  for (int i = 0; i < Tiles::kRows; ++i) {
    KeyRange row;
    if (!whole) row = seen[Tiles::OwnRow(i)];
#pragma unroll
    for (int j = 0; j < Tiles::kCols; ++j)
      Gradient(whole || row.Has(key + Tiles::OtherRow(j)), a.scale, own.lse[i], own.delta[i], s[i][j],
               dp[i][j]);
  }
}

/// dQ of one query tile and head per block, heads running fastest; the last query tiles first.
template <typename Tiles>
__global__ void BackwardQueryTiles(BackwardArguments a) {
  float* q = Shared<float>();                                                 // [kOwn][kStride]
  float* d_o = q + Tiles::kOwnFloats;                                         // [kOwn][kStride]
  float* k = d_o + Tiles::kOwnFloats;                                         // [kOther][kStride]
  float* v = k + Tiles::kOtherFloats;                                         // [kOther][kStride]
  float* chunk = v + Tiles::kOtherFloats;                                     // [kOwn][kChunkStride]
  KeyRange* seen = reinterpret_cast<KeyRange*>(chunk + Tiles::kChunkFloats);  // [kOwn]

  const int64_t row = static_cast<int64_t>((gridDim.x - 1 - blockIdx.x) / a.heads) * Tiles::kOwn;
  const int head = static_cast<int>((gridDim.x - 1 - blockIdx.x) % a.heads);
  const int64_t q_col = static_cast<int64_t>(head) * a.d;
  const int64_t kv_col = static_cast<int64_t>(head) * a.kv_heads / a.heads * a.d;
  const TileRange range = SeenByTile(a.mask, row, Tiles::kOwn);
  if (range.first == range.last) return;

  for (int i = threadIdx.x; i < Tiles::kOwn; i += Tiles::kThreads) seen[i] = SeenByRow(a.mask, row + i);
  StartTile<Tiles, Tiles::kOwn>(a.q, row, q_col, a.d, q);
  StartTile<Tiles, Tiles::kOwn>(a.d_o, row, q_col, a.d, d_o);
  StartTile<Tiles, Tiles::kOther>(a.v, range.first, kv_col, a.d, v);
  OwnStatistics<Tiles> own;
  own.Load(a, row, head);
  typename Tiles::Sum dq;
  SetZero<Tiles>(dq);
  for (int key = range.first; key < range.last; key += Tiles::kOther) {
    CopyAsyncWait<0>();
    __syncthreads();  // v is there; k of the tile before has been read
    StartTile<Tiles, Tiles::kOther>(a.k, key, kv_col, a.d, k);
    typename Tiles::Scores s, dp;
    TileProduct<Tiles>(d_o, v, a.d, dp);
    CopyAsyncWait<0>();
    __syncthreads();  // k is there; v has been read
    if (key + Tiles::kOther < range.last)
      StartTile<Tiles, Tiles::kOther>(a.v, key + Tiles::kOther, kv_col, a.d, v);
    TileProduct<Tiles>(q, k, a.d, s);
    QueryTileGradient<Tiles>(a, range, seen, own, key, s, dp);
    AddWeightedRows<Tiles>(dp, k, chunk, dq);
  }
  AddRows<Tiles>(dq, a.dq, row, q_col, a.d);
}

template <typename Tiles>
void Backward(cudaStream_t stream, Scratch scratch, BackwardArguments a) {
  static_assert(KeyTileBytes<Tiles>() <= kMaxSharedBytes && QueryTileBytes<Tiles>() <= kMaxSharedBytes);
  a.ranges = LaunchFindTileRanges<Tiles::kOther>(stream, scratch, a.mask);
  Launch(stream, static_cast<unsigned>(CeilDiv(a.k.rows, Tiles::kOwn) * a.kv_heads), Tiles::kThreads,
         KeyTileBytes<Tiles>(), BackwardKeyTiles<Tiles>, a);
  Launch(stream, static_cast<unsigned>(CeilDiv(a.q.rows, Tiles::kOwn) * a.heads), Tiles::kThreads,
         QueryTileBytes<Tiles>(), BackwardQueryTiles<Tiles>, a);
}

}  // namespace

void FlashBackwardF32(cudaStream_t stream, Scratch scratch, const AttentionBlock& block, const Matrix& d_o,
                      const Matrix& lse, const Matrix& delta, const Matrix& dq, const Matrix& dk,
                      const Matrix& dv) {
  if (block.q.empty() || block.k.empty()) return;
  const int d = block.head_dim;
  WithTilesFor<BackwardTiles>(d, [&]<typename Tiles>(Tiles) {
    const int64_t most = RowsWithRangesIn<Tiles::kOther>(scratch);
    for (int64_t row = 0; row < block.q.rows; row += most) {
      const int64_t end = std::min(block.q.rows, row + most);
      AttentionBlock rows = block;
      rows.q = block.q.Rows(row, end);
      rows.visible = block.visible.Rows(row, end);
      BackwardArguments a;
      a.q = F32RowsOf(rows.q, d);
      a.k = F32RowsOf(block.k, d);
      a.v = F32RowsOf(block.v, d);
      a.d_o = F32RowsOf(d_o.Rows(row, end), d);
      a.lse = F32RowsOf(lse.Rows(row, end), d);
      a.delta = F32RowsOf(delta.Rows(row, end), d);
      a.dq = F32RowsOf(dq.Rows(row, end), d);
      a.dk = F32RowsOf(dk, d);
      a.dv = F32RowsOf(dv, d);
      a.mask = MaskOf(rows);
      a.heads = block.heads;
      a.kv_heads = block.kv_heads;
      a.d = d;
      a.scale = block.scale;
      Backward<Tiles>(stream, scratch, a);
    }
  });
}

}  // namespace metp::cuda
