#pragma once

// How kernels are started: one function in place of <<< >>>, so that every launch is checked and the sources stay C++.

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "worker/backend/cuda/cuda_error.h"

namespace metp::cuda {

/// Shared memory that a block may have on the smallest architecture supported (8.0: 163 KiB), in bytes.
inline constexpr size_t kMaxSharedBytes = 163 * 1024;

/// kernel<<<grid, block, shared_bytes, stream>>>(arguments...). A grid with a zero in it is not launched.
template <typename... Parameters, typename... Arguments>
void Launch(cudaStream_t stream, dim3 grid, dim3 block, size_t shared_bytes, void (*kernel)(Parameters...),
            Arguments&&... arguments) {
  static_assert(sizeof...(Parameters) == sizeof...(Arguments));
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  constexpr size_t kWithoutAsking = 48 * 1024;
  if (shared_bytes > kWithoutAsking) {
    METP_CUDA(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                   cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   static_cast<int>(shared_bytes)));
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  METP_CUDA(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...));
}

constexpr int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// Blocks for `work` independent pieces walked with a grid stride: enough to fill any device several times over.
inline unsigned GridFor(int64_t work, int64_t per_block) {
  return static_cast<unsigned>(std::clamp<int64_t>(CeilDiv(work, per_block), work > 0 ? 1 : 0, 132 * 32));
}

}  // namespace metp::cuda
