#include "tests/bench/gpu/plain_product.h"

#include <algorithm>
#include <array>
#include <limits>

#include "absl/strings/str_cat.h"

namespace metp::gpu_bench {
namespace {

constexpr int64_t kWorkspaceBytes = int64_t{64} << 20;  // twice ours: the peer is not to lack any
constexpr int kMostAlgorithms = 64;
constexpr int kTrials = 5;

cudaDataType_t TypeOf(const Matrix& m) { return m.type == DType::kBF16 ? CUDA_R_16BF : CUDA_R_32F; }

/// Bytes that the address is a multiple of, 256 at most.
uint32_t Alignment(const Matrix& m) {
  const auto address = reinterpret_cast<uintptr_t>(m.data) | 256;
  return static_cast<uint32_t>(address & -address);
}

}  // namespace

void PlainProduct::Check(cublasStatus_t status) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  ThrowIfError(absl::InternalError(absl::StrCat("plain cuBLASLt: ", cublasLtGetStatusString(status))));
}

// The library counts by columns: c^T = b^T a^T.
PlainProduct::PlainProduct(Bench& bench, const cuda::Product& like) : bench_(bench) {
  workspace_ = bench.backend().Allocate(1, kWorkspaceBytes / SizeOf(DType::kF32), DType::kF32,
                                        MemoryCategory::kWorkspace);
  Check(cublasLtCreate(&handle_));
  Check(cublasLtMatmulDescCreate(&operation_, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  const cublasOperation_t first = like.tb == Transpose::kYes ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t second = like.ta == Transpose::kYes ? CUBLAS_OP_T : CUBLAS_OP_N;
  Check(cublasLtMatmulDescSetAttribute(operation_, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first));
  Check(cublasLtMatmulDescSetAttribute(operation_, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second));
  const auto layout = [](const Matrix& m, cublasLtMatrixLayout_t* out) {
    Check(cublasLtMatrixLayoutCreate(out, TypeOf(m), m.cols, m.rows, m.stride));
  };
  layout(like.b, &a_);
  layout(like.a, &b_);
  layout(like.c, &c_);

  cublasLtMatmulPreference_t preference = nullptr;
  Check(cublasLtMatmulPreferenceCreate(&preference));
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    Check(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value));
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(kWorkspaceBytes));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, Alignment(like.b));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, Alignment(like.a));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, Alignment(like.c));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, Alignment(like.c));
  std::array<cublasLtMatmulHeuristicResult_t, kMostAlgorithms> offered = {};
  int count = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle_, operation_, a_, b_, c_, c_, preference, kMostAlgorithms, offered.data(), &count);
  cublasLtMatmulPreferenceDestroy(preference);
  Check(status);
  for (int i = 0; i < count; ++i) {
    if (offered[i].state == CUBLAS_STATUS_SUCCESS) algorithms_.push_back(offered[i].algo);
  }
  if (algorithms_.empty()) ThrowIfError(absl::InternalError("plain cuBLASLt offers no algorithm"));
}

PlainProduct::~PlainProduct() {
  cublasLtMatrixLayoutDestroy(a_);
  cublasLtMatrixLayoutDestroy(b_);
  cublasLtMatrixLayoutDestroy(c_);
  cublasLtMatmulDescDestroy(operation_);
  cublasLtDestroy(handle_);
}

void PlainProduct::ChooseFastest(const std::function<const cuda::Product&(int round)>& product) {
  double best = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < algorithms_.size(); ++i) {
    if (Start(product(0), i) != CUBLAS_STATUS_SUCCESS) continue;  // offered, but not for these operands
    const double seconds = bench_.Medians({[&](int round) { Check(Start(product(round), i)); }}, kTrials)[0];
    if (seconds < best) {
      best = seconds;
      chosen_ = i;
    }
  }
}

cublasStatus_t PlainProduct::Start(const cuda::Product& x, size_t algorithm) const {
  return cublasLtMatmul(handle_, operation_, &x.alpha, x.b.data, a_, x.a.data, b_, &x.beta, x.c.data, c_,
                        x.c.data, c_, &algorithms_[algorithm], workspace_->data,
                        static_cast<size_t>(kWorkspaceBytes), bench_.backend().stream());
}

}  // namespace metp::gpu_bench
