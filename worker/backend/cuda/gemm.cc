// cuBLASLt counts by columns and we by rows: what we call c [m, n] with a stride is its n x m matrix with that leading
// dimension, so c = a b is asked for as c^T = b^T a^T, with our b in the place of its A.

#include "worker/backend/cuda/gemm.h"

#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"
#include "worker/backend/step_error.h"

namespace metp::cuda {
namespace {

void CheckLt(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  absl::StatusCode code = absl::StatusCode::kInternal;
  const char* advice = "";
  if (status == CUBLAS_STATUS_ALLOC_FAILED) {
    code = absl::StatusCode::kResourceExhausted;
    advice = "; the device or the host has no memory left for it";
  } else if (status == CUBLAS_STATUS_ARCH_MISMATCH || status == CUBLAS_STATUS_NOT_INITIALIZED) {
    code = absl::StatusCode::kFailedPrecondition;
    advice = "; this cuBLASLt does not go with the device or its driver: compare their versions";
  }
  ThrowIfError(
      absl::Status(code, absl::StrCat("cuBLASLt ", cublasLtGetVersion(), ": ", cublasLtGetStatusName(status),
                                      " (", cublasLtGetStatusString(status), ") from ", call, advice)));
}
#define METP_CUBLASLT(call) CheckLt((call), #call)

cudaDataType_t TypeOf(const Matrix& m) { return m.type == DType::kBF16 ? CUDA_R_16BF : CUDA_R_32F; }
cublasOperation_t OperationOf(Transpose t) { return t == Transpose::kYes ? CUBLAS_OP_T : CUBLAS_OP_N; }

/// A view of one row may carry any stride; the library wants at least the row's length.
int64_t LeadingDimension(const Matrix& m) { return std::max(m.stride, m.cols); }

/// Bytes that every matrix of the batch starts at a multiple of, 256 at most. What the stride allows, the library sees.
uint32_t Alignment(const Matrix& m, int64_t step) {
  const auto address = reinterpret_cast<uintptr_t>(m.data);
  const uint64_t all = address | static_cast<uint64_t>(step * SizeOf(m.type)) | 256;
  return uint32_t{1} << std::countr_zero(all);
}

cublasLtMatrixLayout_t LayoutOf(const Matrix& m, int batch, int64_t step) {
  cublasLtMatrixLayout_t layout = nullptr;
  METP_CUBLASLT(cublasLtMatrixLayoutCreate(&layout, TypeOf(m), m.cols, m.rows, LeadingDimension(m)));
  if (batch > 1) {
    METP_CUBLASLT(
        cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof batch));
    METP_CUBLASLT(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step,
                                                   sizeof step));
  }
  return layout;
}

struct Preference {
  Preference() { METP_CUBLASLT(cublasLtMatmulPreferenceCreate(&handle)); }
  ~Preference() { cublasLtMatmulPreferenceDestroy(handle); }
  template <typename T>
  void Set(cublasLtMatmulPreferenceAttributes_t attribute, const T& value) {
    METP_CUBLASLT(cublasLtMatmulPreferenceSetAttribute(handle, attribute, &value, sizeof value));
  }
  cublasLtMatmulPreference_t handle = nullptr;
};

}  // namespace

struct Products::Plan {
  Plan() = default;
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;
  ~Plan() {
    if (a != nullptr) cublasLtMatrixLayoutDestroy(a);
    if (b != nullptr) cublasLtMatrixLayoutDestroy(b);
    if (c != nullptr) cublasLtMatrixLayoutDestroy(c);
    if (operation != nullptr) cublasLtMatmulDescDestroy(operation);
  }
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
  cublasLtMatmulAlgo_t algorithm = {};
};

Products::Products(cudaStream_t stream, const Matrix& workspace) : stream_(stream), workspace_(workspace) {
  METP_CUBLASLT(cublasLtCreate(&handle_));
}

Products::~Products() {
  plans_.clear();
  cublasLtDestroy(handle_);
}

Products::Shape Products::ShapeOf(const Product& x) {
  const auto type = [](const Matrix& m) { return static_cast<int64_t>(m.type); };
  return {x.a.rows,
          x.a.cols,
          LeadingDimension(x.a),
          x.step_a,
          Alignment(x.a, x.step_a),
          x.b.rows,
          x.b.cols,
          LeadingDimension(x.b),
          x.step_b,
          Alignment(x.b, x.step_b),
          LeadingDimension(x.c),
          x.step_c,
          Alignment(x.c, x.step_c),
          type(x.a) * 8 + type(x.c),
          static_cast<int64_t>(x.ta) * 2 + static_cast<int64_t>(x.tb),
          x.batch,
          x.beta != 0};
}

std::unique_ptr<Products::Plan> Products::MakePlan(const Product& x) const {
  auto plan = std::make_unique<Plan>();
  METP_CUBLASLT(cublasLtMatmulDescCreate(&plan->operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  const cublasOperation_t first = OperationOf(x.tb), second = OperationOf(x.ta);
  METP_CUBLASLT(
      cublasLtMatmulDescSetAttribute(plan->operation, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first));
  METP_CUBLASLT(
      cublasLtMatmulDescSetAttribute(plan->operation, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second));
  plan->a = LayoutOf(x.b, x.batch, x.step_b);
  plan->b = LayoutOf(x.a, x.batch, x.step_a);
  plan->c = LayoutOf(x.c, x.batch, x.step_c);
  Preference preference;
  preference.Set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(workspace_.bytes()));
  preference.Set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, Alignment(x.b, x.step_b));
  preference.Set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, Alignment(x.a, x.step_a));
  preference.Set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, Alignment(x.c, x.step_c));
  preference.Set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, Alignment(x.c, x.step_c));
  std::array<cublasLtMatmulHeuristicResult_t, 8> results = {};  // the fastest first
  int found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle_, plan->operation, plan->a, plan->b, plan->c, plan->c, preference.handle,
      static_cast<int>(results.size()), results.data(), &found);
  if (status != CUBLAS_STATUS_NOT_SUPPORTED) CheckLt(status, "cublasLtMatmulAlgoGetHeuristic");
  const auto end = results.begin() + (status == CUBLAS_STATUS_SUCCESS ? found : 0);
  const auto best = std::find_if(results.begin(), end,
                                 [](const auto& result) { return result.state == CUBLAS_STATUS_SUCCESS; });
  if (best == end) {
    ThrowIfError(absl::InternalError(
        absl::StrCat("cuBLASLt ", cublasLtGetVersion(), " has no way to multiply ", x.c.rows, " x ",
                     x.ta == Transpose::kYes ? x.a.rows : x.a.cols, " by ", x.c.cols)));
  }
  plan->algorithm = best->algo;
  return plan;
}

const Products::Plan& Products::PlanFor(const Product& product) {
  const Shape shape = ShapeOf(product);
  auto it = plans_.find(shape);
  if (it == plans_.end()) it = plans_.emplace(shape, MakePlan(product)).first;
  return *it->second;
}

void Products::Run(const Product& x) {
  const Plan& plan = PlanFor(x);
  METP_CUBLASLT(cublasLtMatmul(handle_, plan.operation, &x.alpha, x.b.data, plan.a, x.a.data, plan.b, &x.beta,
                               x.c.data, plan.c, x.c.data, plan.c, &plan.algorithm, workspace_.data,
                               static_cast<size_t>(workspace_.bytes()), stream_));
}

}  // namespace metp::cuda
