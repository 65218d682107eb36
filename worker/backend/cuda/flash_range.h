#pragma once

// Which keys of a block the rows of a query tile see: what of the mask is decided once per pair of tiles
// rather than per element. Keys here are counted from the block's first row of k, ranges are half-open.

#include <cuda_runtime.h>

#include <climits>
#include <cstdint>

#include "worker/backend/cuda/device_code.h"
#include "worker/backend/cuda/kernels.h"
#include "worker/backend/cuda/launch.h"
#include "worker/backend/operands.h"

namespace metp::cuda {

/// A block's mask as kernels take it.
struct FlashMask {
  const int32_t* visible = nullptr;  // [queries, 2], global positions
  int64_t stride = 0;
  int64_t key_position = 0;
  int64_t queries = 0;
  int keys = 0;
};

inline FlashMask MaskOf(const AttentionBlock& block) {
  return {block.visible.i32(), block.visible.stride, block.key_position, block.q.rows,
          static_cast<int>(block.k.rows)};
}

/// The keys that one query row sees, inside [0, keys); first = last = 0 where there are none.
struct KeyRange {
  int first = 0, last = 0;

  __device__ bool Has(int key) const { return first <= key && key < last; }
};

/// Rows from `queries` on see nothing.
__device__ inline KeyRange SeenByRow(const FlashMask& mask, int64_t row) {
  if (row >= mask.queries) return {};
  const int64_t keys = mask.keys;
  int64_t first = mask.visible[row * mask.stride] - mask.key_position;
  int64_t last = mask.visible[row * mask.stride + 1] - mask.key_position;
  first = first < 0 ? 0 : first;
  last = last > keys ? keys : last;
  if (first >= last) return {};
  return {static_cast<int>(first), static_cast<int>(last)};
}

/// What the rows of a query tile see together. Rows from `queries` on have no say.
struct alignas(16) TileRange {
  int first = 0, last = 0;          // no row sees a key outside; first = last = 0 where there are none
  int all_first = 0, all_last = 0;  // every row sees each of these

  /// Whether keys [key, key + n) must be looked at.
  __device__ bool Sees(int key, int n) const { return first < key + n && key < last; }
  /// Whether none of keys [key, key + n) is masked in any row. False where the tile reaches beyond the
  /// block's last key.
  __device__ bool SeesAll(int key, int n) const { return all_first <= key && key + n <= all_last; }
};

/// Of rows [row, row + rows). All 32 lanes of a warp call it and get the same; no shared memory, no barrier.
__device__ inline TileRange SeenByTile(const FlashMask& mask, int64_t row, int rows) {
  TileRange tile{INT_MAX, 0, 0, INT_MAX};
  const int64_t end = row + rows < mask.queries ? row + rows : mask.queries;
  for (int64_t i = row + threadIdx.x % kWarp; i < end; i += kWarp) {
    const KeyRange seen = SeenByRow(mask, i);
    if (seen.first < seen.last && seen.first < tile.first) tile.first = seen.first;
    if (seen.last > tile.last) tile.last = seen.last;
    if (seen.first > tile.all_first) tile.all_first = seen.first;
    if (seen.last < tile.all_last) tile.all_last = seen.last;
  }
#pragma unroll
  for (int lane = kWarp / 2; lane > 0; lane /= 2) {
    const int first = __shfl_xor_sync(kAllLanes, tile.first, lane);
    const int last = __shfl_xor_sync(kAllLanes, tile.last, lane);
    const int all_first = __shfl_xor_sync(kAllLanes, tile.all_first, lane);
    const int all_last = __shfl_xor_sync(kAllLanes, tile.all_last, lane);
    if (first < tile.first) tile.first = first;
    if (last > tile.last) tile.last = last;
    if (all_first > tile.all_first) tile.all_first = all_first;
    if (all_last < tile.all_last) tile.all_last = all_last;
  }
  if (tile.last == 0) tile = TileRange{};
  return tile;
}

/// ranges[i]: of query tile i, rows [i * kRows, (i + 1) * kRows). One warp per tile; blockDim.x a multiple of
/// 32.
template <int kRows>
__global__ void FindTileRanges(FlashMask mask, TileRange* ranges) {
  const int64_t tile = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / kWarp;
  if (tile * kRows >= mask.queries) return;  // the whole warp
  const TileRange range = SeenByTile(mask, tile * kRows, kRows);
  if (threadIdx.x % kWarp == 0) ranges[tile] = range;
}

/// Query rows whose tiles' ranges fit into the scratch memory: longer blocks are taken in pieces of that many
/// rows.
template <int kRows>
int64_t RowsWithRangesIn(Scratch scratch) {
  return scratch.floats / static_cast<int64_t>(sizeof(TileRange) / sizeof(float)) * kRows;
}

/// The ranges of all query tiles of kRows rows, in the scratch memory. At most RowsWithRangesIn(scratch)
/// rows.
template <int kRows>
const TileRange* LaunchFindTileRanges(cudaStream_t stream, Scratch scratch, const FlashMask& mask) {
  TileRange* ranges = reinterpret_cast<TileRange*>(scratch.data);
  const int64_t warps = CeilDiv(mask.queries, kRows);
  constexpr int kThreads = 128;
  Launch(stream, static_cast<unsigned>(CeilDiv(warps * kWarp, kThreads)), kThreads, 0, FindTileRanges<kRows>,
         mask, ranges);
  return ranges;
}

}  // namespace metp::cuda
