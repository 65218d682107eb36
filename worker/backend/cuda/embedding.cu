// Rows of a table shard picked by ids, and gradients added to them. Ids outside the shard belong to other shards.

#include <algorithm>

#include "worker/backend/cuda/kernels.h"
#include "worker/backend/cuda/row_teams.h"
#include "worker/backend/cuda/walk.h"

namespace metp::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / kWarp;

// --- Gather: a warp per row and piece of its columns ---------------------------------------------------------------

constexpr int kGatherPacks = 4;  // accesses of a thread in flight

template <typename T, int N, bool kAccumulate>
__global__ void GatherKernel(Matrix ids, int64_t first, Matrix table, Matrix x) {
  const int64_t row = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  if (row >= x.rows) return;
  const int64_t from = *RowOf<const int32_t>(ids, row) - first;
  if (from < 0 || from >= table.rows) return;
  const int64_t column = int64_t{blockIdx.y} * kGatherPacks * kWarp * N + threadIdx.x % kWarp * N;
  const T* source = RowOf<const T>(table, from) + column;
  T* target = RowOf<T>(x, row) + column;
  Pack<T, N> packs[kGatherPacks], sums[kGatherPacks];
#pragma unroll
  for (int u = 0; u < kGatherPacks; ++u) {
    if (column + u * kWarp * N >= x.cols) continue;
    packs[u] = LoadPack<T, N>(source + u * kWarp * N);
    if (kAccumulate) sums[u] = LoadPack<T, N>(target + u * kWarp * N);
  }
#pragma unroll
  for (int u = 0; u < kGatherPacks; ++u) {
    if (column + u * kWarp * N >= x.cols) continue;
    if constexpr (kAccumulate) {
#pragma unroll
      for (int i = 0; i < N; ++i) {
        packs[u].at[i] = FromFloat<T>(ToFloat(sums[u].at[i]) + ToFloat(packs[u].at[i]));
      }
    }
    StorePack(packs[u], target + u * kWarp * N);
  }
}

template <typename T, int N, bool kAccumulate>
void LaunchGather(cudaStream_t stream, const Matrix& ids, int64_t first, const Matrix& table,
                  const Matrix& x) {
  const dim3 grid(static_cast<unsigned>(CeilDiv(x.rows, kWarps)),
                  static_cast<unsigned>(CeilDiv(x.cols, kGatherPacks * kWarp * N)));
  Launch(stream, grid, kThreads, 0, GatherKernel<T, N, kAccumulate>, ids, first, table, x);
}

/// A matrix of aligned rows as one of 16-byte elements, to be moved only. (nvcc cuts some stores of a Pack of smaller
/// elements to pieces where nothing is computed with it.)
Matrix InPacks(Matrix x) {
  const int64_t pack = 16 / SizeOf(x.type);
  x.cols /= pack;
  x.stride /= pack;
  return x;
}

// --- Scatter-add ---------------------------------------------------------------------------------------------------
// A block owns some rows of the table and a slice of their columns, each thread N of these, and keeps their sums in
// shared memory. It goes through all ids in order and lists those that name its rows; then each thread adds its columns
// of dx in the order of the list. So every sum has one order, and no two threads write the same place.

constexpr int kSums = 22 * 1024;  // per block: 88 KiB, two blocks on a multiprocessor that has 227
constexpr int kMostRows = 256;    // per block: a row's number has 8 bits in a match
constexpr int kIdsEach = 16;      // that a thread reads together
constexpr int kChunk = kThreads * kIdsEach;
constexpr int kPending = 64;                    // matches that may wait for those of the next chunk
constexpr int kInFlight = 16;                   // rows of dx that a thread reads together
constexpr int64_t kMostIds = int64_t{1} << 24;  // per launch: an id's number has 24 bits in a match

/// The block's shared memory.
struct Shares {
  float sums[kSums];                    // [rows, width]
  uint32_t matches[kChunk + kPending];  // number of the id, then of the row it names
  int touched[kMostRows];               // whether any id named the row
  int counts[kWarps];                   // of matches of each warp in a chunk
};

/// The thread's ids of a chunk have numbers from this one on, 32 apart: a warp's follow each other, then the next's.
__device__ inline int FirstOfThread(int chunk) {
  return chunk + threadIdx.x / kWarp * (kWarp * kIdsEach) + threadIdx.x % kWarp;
}
/// Their rows counted from the one that `first` names; no row's number where there is no id, or one below `first`.
__device__ void LoadIds(const Matrix& ids, uint32_t first, int chunk, uint32_t (&rows)[kIdsEach]) {
  const int number = FirstOfThread(chunk), n = static_cast<int>(ids.rows);
#pragma unroll
  for (int j = 0; j < kIdsEach; ++j) {
    rows[j] = first - 1;
    const int at = number + j * kWarp;
    if (at < n) rows[j] = *RowOf<const uint32_t>(ids, at);
  }
#pragma unroll
  for (int j = 0; j < kIdsEach; ++j) rows[j] -= first;
}

/// Appends the chunk's matches, ids that name one of the block's `owned` rows, in the order of their numbers. Returns
/// how many are listed then, the same in all threads.
__device__ int Append(Shares& shares, int listed, int chunk, const uint32_t (&rows)[kIdsEach],
                      uint32_t owned) {
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  int count = 0;
#pragma unroll
  for (int j = 0; j < kIdsEach; ++j) count += __popc(__ballot_sync(kAllLanes, rows[j] < owned));
  if (lane == 0) shares.counts[warp] = count;
  __syncthreads();
  int at = listed;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    const int of_warp = shares.counts[w];
    if (w < warp) at += of_warp;
    listed += of_warp;
  }
#pragma unroll
  for (int j = 0; j < kIdsEach; ++j) {
    const unsigned found = __ballot_sync(kAllLanes, rows[j] < owned);
    if (rows[j] < owned) {
      const uint32_t number = FirstOfThread(chunk) + j * kWarp;
      shares.matches[at + __popc(found & ((1u << lane) - 1))] = number << 8 | rows[j];
    }
    at += __popc(found);
  }
  __syncthreads();
  return listed;
}

/// Adds the listed rows of dx, whose columns of this thread begin at `dx`, to the thread's columns of the sums.
template <typename T, int N>
__device__ void AddMatches(Shares& shares, int listed, const T* dx, int64_t stride, int width) {
  float* const sums = shares.sums + threadIdx.x * N;
  Pack<float, N> sum;
  int current = -1;  // the row that `sum` is of
  for (int k = 0; k < listed; k += kInFlight) {
    Pack<T, N> x[kInFlight];
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) {
      if (k + u < listed) x[u] = LoadPack<T, N>(dx + (shares.matches[k + u] >> 8) * stride);
    }
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) {
      if (k + u >= listed) break;
      const int row = shares.matches[k + u] & 0xff;
      if (row != current) {
        if (current >= 0) StorePack(sum, sums + current * width);
        sum = LoadPack<float, N>(sums + row * width);
        if (threadIdx.x == 0) shares.touched[row] = 1;
        current = row;
      }
#pragma unroll
      for (int i = 0; i < N; ++i) sum.at[i] += ToFloat(x[u].at[i]);
    }
  }
  if (current >= 0) StorePack(sum, sums + current * width);
}

/// to += sums, for the rows that were named.
template <int N>
__device__ void AddSums(const Shares& shares, int rows, int width, float* to, int64_t stride) {
  constexpr int kRows = 4;  // in flight
  const float* const sums = shares.sums + threadIdx.x * N;
  for (int row = 0; row < rows; row += kRows) {
    Pack<float, N> old[kRows];
    bool named[kRows];
#pragma unroll
    for (int u = 0; u < kRows; ++u) {
      named[u] = row + u < rows && shares.touched[row + u] != 0;
      if (named[u]) old[u] = LoadPack<float, N>(to + (row + u) * stride);
    }
#pragma unroll
    for (int u = 0; u < kRows; ++u) {
      if (!named[u]) continue;
      const Pack<float, N> sum = LoadPack<float, N>(sums + (row + u) * width);
#pragma unroll
      for (int i = 0; i < N; ++i) old[u].at[i] += sum.at[i];
      StorePack(old[u], to + (row + u) * stride);
    }
  }
}

/// Block (x, y): the `rows_each` rows from row x * rows_each on, columns from y * width on.
template <typename T, int N>
__global__ void __launch_bounds__(kThreads, 2)
    ScatterAddKernel(Matrix ids, int64_t first, Matrix dx, Matrix d_table, int rows_each, int width) {
  Shares& shares = *Shared<Shares>();
  const int64_t first_row = int64_t{blockIdx.x} * rows_each;
  const int owned = static_cast<int>(std::min(int64_t{rows_each}, d_table.rows - first_row));
  const int thread = static_cast<int>(threadIdx.x), n = static_cast<int>(ids.rows);
  const int64_t column = int64_t{blockIdx.y} * width + thread * N;
  const bool has_columns = thread * N < width && column < d_table.cols;
  if (thread < owned) shares.touched[thread] = 0;
  for (int row = 0; has_columns && row < owned; ++row) {
    StorePack(Pack<float, N>{}, shares.sums + row * width + thread * N);
  }
  int listed = 0;
  for (int chunk = 0; chunk < n; chunk += kChunk) {
    uint32_t rows[kIdsEach];
    LoadIds(ids, static_cast<uint32_t>(first + first_row), chunk, rows);
    bool any = false;
#pragma unroll
    for (int j = 0; j < kIdsEach; ++j) any = any || rows[j] < static_cast<uint32_t>(owned);
    if (__syncthreads_or(any)) listed = Append(shares, listed, chunk, rows, owned);
    if (listed > kPending || chunk + kChunk >= n) {
      if (has_columns) AddMatches<T, N>(shares, listed, RowOf<const T>(dx, 0) + column, dx.stride, width);
      listed = 0;
    }
  }
  __syncthreads();
  if (has_columns) {
    AddSums<N>(shares, owned, width, RowOf<float>(d_table, first_row) + column, d_table.stride);
  }
}

template <typename T, int N>
void LaunchScatterAdd(cudaStream_t stream, const Matrix& ids, int64_t first, const Matrix& dx,
                      const Matrix& d_table) {
  const int64_t slices = CeilDiv(d_table.cols, kThreads * N);
  const int width = static_cast<int>(CeilDiv(CeilDiv(d_table.cols, slices), N) * N);
  const int rows_each = std::min(kMostRows, kSums / width);
  const dim3 grid(static_cast<unsigned>(CeilDiv(d_table.rows, rows_each)), static_cast<unsigned>(slices));
  for (int64_t begin = 0; begin < ids.rows; begin += kMostIds) {
    const int64_t end = std::min(ids.rows, begin + kMostIds);
    Launch(stream, grid, kThreads, sizeof(Shares), ScatterAddKernel<T, N>, ids.Rows(begin, end), first,
           dx.Rows(begin, end), d_table, rows_each, width);
  }
}

template <typename T>
void LaunchScatterAdd(cudaStream_t stream, const Matrix& ids, int64_t first, const Matrix& dx,
                      const Matrix& d_table) {
  if (dx.cols % 4 == 0 && RowsAligned(dx, 4 * sizeof(T)) && RowsAligned(d_table, 16)) {
    LaunchScatterAdd<T, 4>(stream, ids, first, dx, d_table);
  } else {
    LaunchScatterAdd<T, 1>(stream, ids, first, dx, d_table);
  }
}

}  // namespace

void EmbeddingGather(cudaStream_t stream, const Matrix& ids, int64_t first, const Matrix& table,
                     bool accumulate, const Matrix& x) {
  if (x.empty() || table.empty()) return;
  const int64_t pack = 16 / SizeOf(x.type);
  const bool packed = x.cols % pack == 0 && RowsAligned(x, 16) && RowsAligned(table, 16);
  if (packed && !accumulate) {
    LaunchGather<uint4, 1, false>(stream, ids, first, InPacks(table), InPacks(x));
  } else if (x.type == DType::kF32) {
    const auto launch = packed       ? LaunchGather<float, 4, true>
                        : accumulate ? LaunchGather<float, 1, true>
                                     : LaunchGather<float, 1, false>;
    launch(stream, ids, first, table, x);
  } else {
    const auto launch = packed       ? LaunchGather<bf16, 8, true>
                        : accumulate ? LaunchGather<bf16, 1, true>
                                     : LaunchGather<bf16, 1, false>;
    launch(stream, ids, first, table, x);
  }
}

void EmbeddingScatterAdd(cudaStream_t stream, const Matrix& ids, int64_t first, const Matrix& dx,
                         const Matrix& d_table) {
  if (dx.empty() || d_table.empty()) return;
  const auto launch = dx.type == DType::kF32 ? LaunchScatterAdd<float> : LaunchScatterAdd<bf16>;
  launch(stream, ids, first, dx, d_table);
}

}  // namespace metp::cuda
