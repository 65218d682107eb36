#pragma once

// Attention with its scores in memory that the caller decides on (block.scores): products by cuBLASLt, the pointwise middle
// by tiled_softmax.cu. Meanings are backend.h's; nothing is empty.

#include <cuda_runtime.h>

#include "worker/backend/cuda/gemm.h"
#include "worker/backend/operands.h"

namespace metp::cuda {

void TiledForward(cudaStream_t stream, Products& products, const AttentionBlock& block, const Matrix& o,
                  const Matrix& lse);
void TiledBackward(cudaStream_t stream, Products& products, const AttentionBlock& block, const Matrix& d_o,
                   const Matrix& lse, const Matrix& delta, const Matrix& dq, const Matrix& dk,
                   const Matrix& dv);

}  // namespace metp::cuda
