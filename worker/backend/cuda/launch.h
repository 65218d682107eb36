#pragma once

// How kernels are started: one function in place of <<< >>>, so that every launch is checked and the sources stay C++.
// And what a launch depends on: numbers of blocks, alignments.

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "worker/backend/cuda/capability.h"
#include "worker/backend/cuda/cuda_error.h"
#include "worker/backend/operands.h"

namespace metp::cuda {

/// kernel<<<grid, block, shared_bytes, stream>>>(arguments...). A grid with a zero in it is not launched.
template <typename... Parameters, typename... Arguments>
void Launch(cudaStream_t stream, dim3 grid, dim3 block, size_t shared_bytes, void (*kernel)(Parameters...),
            Arguments&&... arguments) {
  static_assert(sizeof...(Parameters) == sizeof...(Arguments));
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  const void* const function = reinterpret_cast<const void*>(kernel);
  constexpr size_t kWithoutAsking = size_t{48} * 1024;
  if (shared_bytes > kWithoutAsking) {
    CheckLaunch(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     static_cast<int>(shared_bytes)),
                function);
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  CheckLaunch(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...), function);
}

/// Whether every row starts at a multiple of `bytes`.
inline bool RowsAligned(const void* data, int64_t rows, int64_t stride_bytes, int64_t bytes) {
  return reinterpret_cast<uintptr_t>(data) % bytes == 0 && (rows <= 1 || stride_bytes % bytes == 0);
}
inline bool RowsAligned(const Matrix& x, int64_t bytes) {
  return RowsAligned(x.data, x.rows, x.stride * SizeOf(x.type), bytes);
}

constexpr int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// Blocks for `work` independent pieces walked with a grid stride: enough to fill any device several times over.
inline unsigned GridFor(int64_t work, int64_t per_block) {
  return static_cast<unsigned>(
      std::clamp<int64_t>(CeilDiv(work, per_block), work > 0 ? 1 : 0, int64_t{132} * 32));
}

}  // namespace metp::cuda
