#pragma once

// Rows shared out to teams of threads, a warp for a short row or a block for a long one, and where in a row that starts
// anywhere accesses of 16 bytes can begin. Columns are int: no row has 2^31 of them.

#include <cuda_runtime.h>

#include <cstdint>

#include "worker/backend/cuda/device_code.h"
#include "worker/backend/cuda/launch.h"
#include "worker/backend/operands.h"

namespace metp::cuda {

template <typename T>
__device__ inline T* RowOf(const Matrix& x, int64_t row) {
  return static_cast<T*>(x.data) + row * x.stride;
}

/// How a launch shares out its rows.
struct Teams {
  unsigned blocks, threads;
  int size;  // threads per row: a warp or a block
};
inline Teams TeamsFor(int64_t rows, int64_t cols) {
  constexpr int64_t kShort = 512;  // four accesses of 16 bytes from each lane of a warp, in fp32
  if (cols <= kShort) return {static_cast<unsigned>(CeilDiv(rows, 8)), 8 * kWarp, kWarp};
  const int threads = cols <= 4 * kShort ? 128 : cols <= 32 * kShort ? 256 : 512;
  return {static_cast<unsigned>(rows), static_cast<unsigned>(threads), threads};
}

/// The calling thread's team and its place in it. In a launch's last block the rows of some teams, each a warp, may lie
/// past the end: those have nothing to do.
struct Team {
  int64_t row;
  int size, lane;

  __device__ explicit Team(int team_size)
      : row(int64_t{blockIdx.x} * (blockDim.x / team_size) + threadIdx.x / team_size),
        size(team_size),
        lane(threadIdx.x % team_size) {}
  __device__ void Sync() const {
    if (size == kWarp) {
      __syncwarp();
    } else {
      __syncthreads();
    }
  }
};

/// Columns [begin, end) of a row, cut so that row + body and row + tail are multiples of N elements: packs of N tile
/// [body, tail); the fewer than N columns before and after it are loose.
template <int N>
struct Cut {
  int begin, body, tail, end;

  template <typename T>
  __device__ Cut(const T* row, int first, int last) : begin(first), end(last) {
    const int past = static_cast<int>(reinterpret_cast<uintptr_t>(row + first) / sizeof(T) % N);
    body = first + (N - past) % N;
    if (body > last) body = last;
    tail = body + (last - body) / N * N;
  }
  /// The loose column that falls to a lane of a team, -1 where none does.
  __device__ int Loose(int lane) const {
    const int before = body - begin;
    if (lane < before) return begin + lane;
    return lane - before < end - tail ? tail + lane - before : -1;
  }
};

}  // namespace metp::cuda
