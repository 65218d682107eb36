#pragma once

// What tests do to the emulated cuBLASLt.

#include <cublasLt.h>

namespace metp::emulation {

/// cublasLtMatmulAlgoGetHeuristic and cublasLtMatmul return this from now on; CUBLAS_STATUS_SUCCESS mends them.
void BreakCublasLt(cublasStatus_t status);

/// So many of the results that the heuristic gives first are of no use from now on, as their state says.
void SpoilHeuristic(int results);

}  // namespace metp::emulation
