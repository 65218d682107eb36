// The emulated cuBLASLt: descriptors, and checks of what the real library would refuse.
//
// An algorithm remembers the alignments that it was chosen for: one that is used with operands aligned to less is refused,
// as it would fault on a device.

#include <cublasLt.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include "tests/cuda_emulation/cublaslt_product.h"
#include "tests/cuda_emulation/emulated_cublaslt.h"
#include "tests/cuda_emulation/engine.h"

namespace {

using metp::emulation::Desc;
using metp::emulation::Layout;
using metp::emulation::Product;

// First word of an algorithm; then come the alignments of A, B, C, D, and the bytes of workspace.
constexpr uint64_t kAlgorithm = 0x6d65747067656d6d;
constexpr size_t kWorkspaceBytes = 4096;  // used where that much is allowed
constexpr uint32_t kWidestAccess = 16;    // bytes; no kernel wants more alignment than this

std::atomic<cublasStatus_t> broken = CUBLAS_STATUS_SUCCESS;
std::atomic<int> spoiled = 0;

/// Sets `field` when the value given has its size.
template <typename T>
cublasStatus_t Set(T* field, const void* value, size_t bytes) {
  if (value == nullptr || bytes != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(field, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

template <typename T, typename... Arguments>
cublasStatus_t Create(T** made, Arguments&&... arguments) {
  if (made == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  *made = new T{std::forward<Arguments>(arguments)...};
  return CUBLAS_STATUS_SUCCESS;
}

template <typename T>
cublasStatus_t Destroy(T* made) {
  delete made;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t CheckLayout(const Layout& m) {
  if (m.rows == 0 || m.cols == 0 || m.batch < 1 || m.ld < m.length()) return CUBLAS_STATUS_INVALID_VALUE;
  if (m.order != CUBLASLT_ORDER_COL && m.order != CUBLASLT_ORDER_ROW) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (m.type != CUDA_R_32F && m.type != CUDA_R_16BF) return CUBLAS_STATUS_NOT_SUPPORTED;
  constexpr uint64_t kMost = std::numeric_limits<int32_t>::max();
  return m.rows > kMost || m.cols > kMost ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
}

std::pair<uint64_t, uint64_t> ShapeOf(const Layout& m, int32_t transpose) {
  return transpose == CUBLAS_OP_N ? std::pair(m.rows, m.cols) : std::pair(m.cols, m.rows);
}

/// C and D may be one matrix or two of one shape, order, type.
bool Alike(const Layout& c, const Layout& d) {
  return c.rows == d.rows && c.cols == d.cols && c.batch == d.batch && c.type == d.type && c.order == d.order;
}

cublasStatus_t CheckProduct(const Desc& desc, const Layout& a, const Layout& b, const Layout& c,
                            const Layout& d) {
  if (desc.compute != CUBLAS_COMPUTE_32F || desc.scale != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (desc.pointer_mode != CUBLASLT_POINTER_MODE_HOST) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (desc.epilogue != CUBLASLT_EPILOGUE_DEFAULT) return CUBLAS_STATUS_NOT_SUPPORTED;
  for (const Layout* m : {&a, &b, &c, &d}) {
    if (const cublasStatus_t status = CheckLayout(*m); status != CUBLAS_STATUS_SUCCESS) return status;
  }
  const auto [m, k] = ShapeOf(a, desc.transpose_a);
  const auto [k_of_b, n] = ShapeOf(b, desc.transpose_b);
  if (k != k_of_b || d.rows != m || d.cols != n) return CUBLAS_STATUS_INVALID_VALUE;
  if (a.batch != d.batch || b.batch != d.batch || !Alike(c, d)) return CUBLAS_STATUS_INVALID_VALUE;
  const bool types = a.type == b.type && (d.type == CUDA_R_32F || d.type == a.type);
  return types ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

bool Aligned(const void* at, uint64_t bytes) { return reinterpret_cast<uintptr_t>(at) % bytes == 0; }

}  // namespace

namespace metp::emulation {
void BreakCublasLt(cublasStatus_t status) { broken = status; }
void SpoilHeuristic(int results) { spoiled = results; }
}  // namespace metp::emulation

size_t cublasLtGetVersion() { return 130100; }

const char* cublasLtGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED:
      return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_ARCH_MISMATCH:
      return "CUBLAS_STATUS_ARCH_MISMATCH";
    case CUBLAS_STATUS_MAPPING_ERROR:
      return "CUBLAS_STATUS_MAPPING_ERROR";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_INTERNAL_ERROR:
      return "CUBLAS_STATUS_INTERNAL_ERROR";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
    case CUBLAS_STATUS_LICENSE_ERROR:
      return "CUBLAS_STATUS_LICENSE_ERROR";
  }
  return "CUBLAS_STATUS_UNKNOWN";
}

const char* cublasLtGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "success";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "an unsupported value or parameter was passed to the function";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "the functionality requested is not supported";
    default:
      return "an error of the emulated library";
  }
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) { return Create(handle); }
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) { return Destroy(handle); }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  return Create(desc, compute, scale);
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) { return Destroy(desc); }

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t attribute, const void* value,
                                              size_t bytes) {
  if (desc == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_COMPUTE_TYPE:
      return Set(&desc->compute, value, bytes);
    case CUBLASLT_MATMUL_DESC_SCALE_TYPE:
      return Set(&desc->scale, value, bytes);
    case CUBLASLT_MATMUL_DESC_POINTER_MODE:
      return Set(&desc->pointer_mode, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return Set(&desc->transpose_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return Set(&desc->transpose_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return Set(&desc->epilogue, value, bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, uint64_t rows,
                                          uint64_t cols, int64_t ld) {
  const cublasStatus_t status = Create(layout);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  (*layout)->type = type;
  (*layout)->rows = rows;
  (*layout)->cols = cols;
  (*layout)->ld = ld;
  return status;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) { return Destroy(layout); }

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void* value,
                                                size_t bytes) {
  if (layout == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_TYPE:
      return Set(&layout->type, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_ORDER:
      return Set(&layout->order, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_ROWS:
      return Set(&layout->rows, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_COLS:
      return Set(&layout->cols, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_LD:
      return Set(&layout->ld, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      return Set(&layout->batch, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      return Set(&layout->step, value, bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  return Create(preference);
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return Destroy(preference);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t bytes) {
  if (preference == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  uint32_t ignored;
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_SEARCH_MODE:
      return Set(&ignored, value, bytes);
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return Set(&preference->max_workspace, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      return Set(&preference->alignment_a, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      return Set(&preference->alignment_b, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      return Set(&preference->alignment_c, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return Set(&preference->alignment_d, value, bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t results[], int* returned) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (desc == nullptr || a == nullptr || b == nullptr || c == nullptr || d == nullptr ||
      preference == nullptr || requested < 1 || results == nullptr || returned == nullptr) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  *returned = 0;
  if (const cublasStatus_t status = broken; status != CUBLAS_STATUS_SUCCESS) return status;
  if (const auto status = CheckProduct(*desc, *a, *b, *c, *d); status != CUBLAS_STATUS_SUCCESS) return status;
  const uint32_t wanted[] = {preference->alignment_a, preference->alignment_b, preference->alignment_c,
                             preference->alignment_d};
  const Layout* const layouts[] = {a, b, c, d};
  for (; *returned < std::min<int>(requested, spoiled); ++*returned) {
    results[*returned] = {};
    results[*returned].state = CUBLAS_STATUS_NOT_SUPPORTED;
  }
  if (*returned == requested) return CUBLAS_STATUS_SUCCESS;
  cublasLtMatmulHeuristicResult_t& result = results[*returned];
  result = {};
  result.algo.data[0] = kAlgorithm;
  for (size_t i = 0; i < 4; ++i) {  // no kernel reads elements that are not aligned to themselves
    if (!std::has_single_bit(wanted[i])) return CUBLAS_STATUS_INVALID_VALUE;
    if (wanted[i] < layouts[i]->element_bytes()) return CUBLAS_STATUS_NOT_SUPPORTED;
    result.algo.data[1 + i] = std::min(wanted[i], kWidestAccess);
  }
  result.workspaceSize = preference->max_workspace < kWorkspaceBytes ? 0 : kWorkspaceBytes;
  result.algo.data[5] = result.workspaceSize;
  result.wavesCount = 1;
  ++*returned;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void* alpha,
                              const void* A, cublasLtMatrixLayout_t a, const void* B,
                              cublasLtMatrixLayout_t b, const void* beta, const void* C,
                              cublasLtMatrixLayout_t c, void* D, cublasLtMatrixLayout_t d,
                              const cublasLtMatmulAlgo_t* algo, void* workspace, size_t workspace_bytes,
                              cudaStream_t stream) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (desc == nullptr || a == nullptr || b == nullptr || c == nullptr || d == nullptr || alpha == nullptr ||
      beta == nullptr || A == nullptr || B == nullptr || C == nullptr || D == nullptr) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (const cublasStatus_t status = broken; status != CUBLAS_STATUS_SUCCESS) return status;
  if (const auto status = CheckProduct(*desc, *a, *b, *c, *d); status != CUBLAS_STATUS_SUCCESS) return status;
  if (C == D && c->ld != d->ld) return CUBLAS_STATUS_INVALID_VALUE;
  size_t workspace_used = 0;
  if (algo != nullptr) {
    if (algo->data[0] != kAlgorithm) return CUBLAS_STATUS_INVALID_VALUE;
    const void* const operands[] = {A, B, C, D};
    for (size_t i = 0; i < 4; ++i) {
      if (!Aligned(operands[i], algo->data[1 + i])) return CUBLAS_STATUS_INVALID_VALUE;
    }
    workspace_used = algo->data[5];
  }
  if (workspace_used > workspace_bytes ||
      (workspace_used > 0 && (workspace == nullptr || !Aligned(workspace, 256)))) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  Product product = {*desc, 0, 0, A, B, C, *a, *b, *c, *d, D, workspace, workspace_used};
  std::memcpy(&product.alpha, alpha, sizeof(float));
  std::memcpy(&product.beta, beta, sizeof(float));
  metp::emulation::Enqueue(stream, "cublasLtMatmul", [product] { metp::emulation::RunProduct(product); });
  return CUBLAS_STATUS_SUCCESS;
}
