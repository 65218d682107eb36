// Fused attention in fp32, forward: a block of threads owns a tile of query rows of one head and walks over
// the key tiles that they see, with the online softmax of Milakov and Gimelshein (arXiv 1805.02867) as in
// FlashAttention-2 (arXiv 2307.08691), then merges what it found into the running o and lse.

#include <cmath>

#include "worker/backend/cuda/flash_f32.h"
#include "worker/backend/cuda/flash_range.h"
#include "worker/backend/cuda/kernels.h"
#include "worker/backend/cuda/launch.h"

namespace metp::cuda {
namespace {

struct ForwardArguments {
  F32Rows q, k, v, o, lse;
  FlashMask mask;
  int heads = 0, kv_heads = 0, d = 0;
  float scale = 0;
};

// Own rows are queries, the others keys. At most 154 KiB.
template <int kWidth>
struct ForwardTiles;
template <>
struct ForwardTiles<32> : F32Tiles<32, 128, 64, 256> {};
template <>
struct ForwardTiles<64> : F32Tiles<64, 128, 64, 256> {};
template <>
struct ForwardTiles<128> : F32Tiles<128, 128, 64, 256> {};
template <>
struct ForwardTiles<256> : F32Tiles<256, 64, 32, 128> {};

template <typename Tiles>
constexpr size_t ForwardBytes() {
  return (Tiles::kOwnFloats + 2 * Tiles::kOtherFloats + Tiles::kChunkFloats) * sizeof(float) +
         Tiles::kOwn * sizeof(KeyRange);
}

/// The maximum and the sum over a row's 8 lanes.
__device__ inline float RowMax(float x) {
#pragma unroll
  for (int lane = 4; lane > 0; lane /= 2) x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, lane));
  return x;
}
__device__ inline float RowSum(float x) {
#pragma unroll
  for (int lane = 4; lane > 0; lane /= 2) x += __shfl_xor_sync(kAllLanes, x, lane);
  return x;
}

/// Scales the scores; those of keys from `key` on that a row does not see become -inf.
template <typename Tiles>
__device__ inline void ScaleAndMask(const TileRange& range, const KeyRange* seen, int key, float scale,
                                    typename Tiles::Scores& s) {
  const bool whole = range.SeesAll(key, Tiles::kOther);
#pragma unroll
  for (int i = 0; i < Tiles::kRows; ++i) {
    KeyRange row;
    if (!whole) row = seen[Tiles::OwnRow(i)];
#pragma unroll
    for (int j = 0; j < Tiles::kCols; ++j)
      s[i][j] = whole || row.Has(key + Tiles::OtherRow(j)) ? s[i][j] * scale : -INFINITY;
  }
}

/// The rows' softmax so far: over the keys seen, e^(s - max), summed with and without v. A lane's `total` is
/// of its own columns. NaN stays out of max and goes into total and sum.
template <typename Tiles>
struct Running {
  float max[Tiles::kRows], total[Tiles::kRows];
  typename Tiles::Sum sum;

  __device__ void Clear() {
#pragma unroll
    for (int i = 0; i < Tiles::kRows; ++i) {
      max[i] = -INFINITY;
      total[i] = 0;
    }
    SetZero<Tiles>(sum);
  }

  /// Turns scores into e^(s - max), after max has risen by them and what was summed before has been scaled
  /// down.
  __device__ void Take(typename Tiles::Scores& s) {
#pragma unroll
    for (int i = 0; i < Tiles::kRows; ++i) {
      float high = max[i];
#pragma unroll
      for (int j = 0; j < Tiles::kCols; ++j) high = fmaxf(high, s[i][j]);
      high = RowMax(high);
      const float base = high == -INFINITY ? 0.0f : high;  // nothing seen yet: e^(-inf - 0) = 0
      const float down = __expf(max[i] - base);
      max[i] = high;
      total[i] *= down;
#pragma unroll
      for (int n = 0; n < Tiles::kPacks; ++n) {
#pragma unroll
        for (int x = 0; x < 4; ++x) sum[i][n][x] *= down;
      }
#pragma unroll
      for (int j = 0; j < Tiles::kCols; ++j) {
        s[i][j] = __expf(s[i][j] - base);
        total[i] += s[i][j];
      }
    }
  }

  /// Merges into rows [row, ..) of o and lse. A row that saw nothing is not touched.
  __device__ void Merge(const ForwardArguments& a, int64_t row, int head) {
#pragma unroll
    for (int i = 0; i < Tiles::kRows; ++i) {
      const int64_t r = row + Tiles::OwnRow(i);
      const float all = RowSum(total[i]);
      const bool merges = r < a.q.rows && all != 0;
      const float block = max[i] + logf(all);
      const float before = merges ? *a.lse.At(r, head) : 0.0f;
      __syncwarp();  // all 8 lanes have read it
      if (!merges) continue;
      const float high = before > block ? before : block, low = before > block ? block : before;
      const float after = high + log1pf(expf(low - high));
      MergeRow<Tiles>(sum[i], expf(block - after) / all, expf(before - after), a.o.packs, a.d,
                      a.o.At(r, static_cast<int64_t>(head) * a.d));
      if (threadIdx.x % 8 == 0) *a.lse.At(r, head) = after;
    }
  }
};

/// One block per query tile and head, heads running fastest; the last query tiles, which a causal mask lets
/// see most, first.
template <typename Tiles>
__global__ void Forward(ForwardArguments a) {
  float* q = Shared<float>();                                                 // [kOwn][kStride]
  float* k = q + Tiles::kOwnFloats;                                           // [kOther][kStride]
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
  StartTile<Tiles, Tiles::kOther>(a.k, range.first, kv_col, a.d, k);
  Running<Tiles> running;
  running.Clear();
  for (int key = range.first; key < range.last; key += Tiles::kOther) {
    CopyAsyncWait<0>();
    __syncthreads();  // k is there; v of the tile before has been read
    StartTile<Tiles, Tiles::kOther>(a.v, key, kv_col, a.d, v);
    typename Tiles::Scores s;
    TileProduct<Tiles>(q, k, a.d, s);
    ScaleAndMask<Tiles>(range, seen, key, a.scale, s);
    running.Take(s);
    CopyAsyncWait<0>();
    __syncthreads();  // v is there; k has been read
    if (key + Tiles::kOther < range.last)
      StartTile<Tiles, Tiles::kOther>(a.k, key + Tiles::kOther, kv_col, a.d, k);
    AddWeightedRows<Tiles>(s, v, chunk, running.sum);
  }
  running.Merge(a, row, head);
}

}  // namespace

void FlashForwardF32(cudaStream_t stream, const AttentionBlock& block, const Matrix& o, const Matrix& lse) {
  if (block.q.empty() || block.k.empty()) return;
  const int d = block.head_dim;
  const ForwardArguments a = {F32RowsOf(block.q, d),
                              F32RowsOf(block.k, d),
                              F32RowsOf(block.v, d),
                              F32RowsOf(o, d),
                              F32RowsOf(lse, d),
                              MaskOf(block),
                              block.heads,
                              block.kv_heads,
                              d,
                              block.scale};
  WithTilesFor<ForwardTiles>(d, [&]<typename Tiles>(Tiles) {
    static_assert(ForwardBytes<Tiles>() <= kMaxSharedBytes);
    Launch(stream, static_cast<unsigned>(CeilDiv(block.q.rows, Tiles::kOwn) * block.heads), Tiles::kThreads,
           ForwardBytes<Tiles>(), Forward<Tiles>, a);
  });
}

}  // namespace metp::cuda
