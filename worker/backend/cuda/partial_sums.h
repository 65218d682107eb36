#pragma once

// The second half of sums over rows (sums.cu): partial sums by many blocks, added up in a fixed order.

#include <cuda_runtime.h>

#include <cstdint>

#include "worker/backend/operands.h"

namespace metp::cuda {

/// sums [1, cols] += the `count` rows of partials [count, cols], which start `stride` floats apart.
void AddPartials(cudaStream_t stream, const float* partials, int64_t count, int64_t stride,
                 const Matrix& sums);

}  // namespace metp::cuda
