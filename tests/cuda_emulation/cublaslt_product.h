#pragma once

// What stands behind the emulated cuBLASLt's handles, and a product as it waits on a stream.

#include <cublasLt.h>

#include <cstddef>
#include <cstdint>

struct cublasLtContext {};

struct cublasLtMatmulDescOpaque_t {
  int32_t compute = CUBLAS_COMPUTE_32F, scale = CUDA_R_32F, pointer_mode = CUBLASLT_POINTER_MODE_HOST;
  int32_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
};

struct cublasLtMatrixLayoutOpaque_t {
  uint32_t type = CUDA_R_32F;
  int32_t order = CUBLASLT_ORDER_COL;
  uint64_t rows = 0, cols = 0;
  int64_t ld = 0;
  int32_t batch = 1;
  int64_t step = 0;  // elements from one matrix of the batch to the next

  int64_t element_bytes() const { return type == CUDA_R_16BF ? 2 : 4; }
  /// What lies together in memory: `lines` runs of `length` elements, `ld` apart.
  int64_t lines() const { return static_cast<int64_t>(order == CUBLASLT_ORDER_COL ? cols : rows); }
  int64_t length() const { return static_cast<int64_t>(order == CUBLASLT_ORDER_COL ? rows : cols); }
};

struct cublasLtMatmulPreferenceOpaque_t {
  uint64_t max_workspace = 0;
  uint32_t alignment_a = 256, alignment_b = 256, alignment_c = 256, alignment_d = 256;
};

namespace metp::emulation {

using Layout = cublasLtMatrixLayoutOpaque_t;
using Desc = cublasLtMatmulDescOpaque_t;

/// A product whose arguments have been checked, and all that its work on the stream needs.
struct Product {
  Desc desc;
  float alpha = 0, beta = 0;
  const void *a = nullptr, *b = nullptr, *c = nullptr;
  Layout a_layout, b_layout, c_layout, d_layout;
  void* d = nullptr;
  void* workspace = nullptr;
  size_t workspace_bytes = 0;
};

/// Computes it, noting every byte that it touches. On the stream's thread.
void RunProduct(const Product& product);

}  // namespace metp::emulation
