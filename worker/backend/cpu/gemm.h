#pragma once

// Single-precision products for the attention tiles and CpuBackend::Gemm, by oneDNN. Any thread: inside a
// team each call runs on its own thread alone, outside one it uses the team that SgemmThreads set for the
// calling thread.

#include <cstdint>

#include "worker/backend/backend.h"

namespace metp::cpu {

/// A row-major operand: first element and elements from row to row.
struct Operand {
  const float* data;
  int64_t stride;
  Transpose transpose = Transpose::kNo;
};

/// Threads that Sgemm uses when called from this thread outside a team.
void SgemmThreads(int threads);

/// c [m, n] = alpha op(a) op(b) + beta c with inner dimension k; m, n, k > 0. With beta 0 c's old contents
/// are not read.
void Sgemm(int64_t m, int64_t n, int64_t k, float alpha, const Operand& a, const Operand& b, float beta,
           float* c, int64_t c_stride);

}  // namespace metp::cpu
