// The emulated cuBLASLt against products in double, and what it refuses.

#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "tests/cuda_emulation/emulated_cublaslt.h"
#include "tests/cuda_emulation/engine.h"

namespace metp::emulation {
namespace {

constexpr float kPad = 77;  // stands between the lines of a matrix

/// A batch of matrices in device memory, with a copy on the host.
class Operand {
 public:
  Operand(cudaDataType_t type, int rows, int cols, cublasLtOrder_t order, int pad, int batch,
          bool undefined = false)
      : type_(type), rows_(rows), cols_(cols), order_(order), batch_(batch) {
    const int length = order == CUBLASLT_ORDER_COL ? rows : cols,
              lines = order == CUBLASLT_ORDER_COL ? cols : rows;
    ld_ = length + pad;
    step_ = int64_t{ld_} * lines + 3 * pad;
    host_.assign(static_cast<size_t>(step_ * batch), kPad);
    for (int b = 0; b < batch; ++b) {
      for (int r = 0; r < rows; ++r) {
        for (int c = 0; c < cols; ++c)
          At(b, r, c) = undefined ? NAN : static_cast<float>((7 * r + 3 * c + b) % 11 - 5) / 4;
      }
    }
    cudaMalloc(&data_, host_.size() * ElementBytes());
    Upload();
    cublasLtMatrixLayoutCreate(&layout_, type, static_cast<uint64_t>(rows), static_cast<uint64_t>(cols), ld_);
    const int32_t layout_order = order;
    cublasLtMatrixLayoutSetAttribute(layout_, CUBLASLT_MATRIX_LAYOUT_ORDER, &layout_order,
                                     sizeof(layout_order));
    cublasLtMatrixLayoutSetAttribute(layout_, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof(batch));
    cublasLtMatrixLayoutSetAttribute(layout_, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step_,
                                     sizeof(step_));
  }
  ~Operand() {
    cublasLtMatrixLayoutDestroy(layout_);
    cudaFree(data_);
  }
  Operand(const Operand&) = delete;
  Operand& operator=(const Operand&) = delete;

  float& At(int matrix, int row, int col) {
    const int line = order_ == CUBLASLT_ORDER_COL ? col : row, i = order_ == CUBLASLT_ORDER_COL ? row : col;
    return host_[static_cast<size_t>(matrix * step_ + int64_t{line} * ld_ + i)];
  }
  void Upload() {
    if (type_ == CUDA_R_32F) {
      cudaMemcpy(data_, host_.data(), host_.size() * 4, cudaMemcpyHostToDevice);
    } else {
      const std::vector<__nv_bfloat16> halves(host_.begin(), host_.end());
      cudaMemcpy(data_, halves.data(), halves.size() * 2, cudaMemcpyHostToDevice);
    }
  }
  void Download() {
    if (type_ == CUDA_R_32F) {
      cudaMemcpy(host_.data(), data_, host_.size() * 4, cudaMemcpyDeviceToHost);
    } else {
      std::vector<__nv_bfloat16> halves(host_.size());
      cudaMemcpy(halves.data(), data_, halves.size() * 2, cudaMemcpyDeviceToHost);
      for (size_t i = 0; i < halves.size(); ++i) host_[i] = halves[i];
    }
  }
  int Pads() const {
    int pads = 0;
    for (const float x : host_) pads += x == kPad ? 1 : 0;
    return pads;
  }
  size_t ElementBytes() const { return type_ == CUDA_R_32F ? 4 : 2; }
  void* data() const { return data_; }
  cublasLtMatrixLayout_t layout() const { return layout_; }
  int rows() const { return rows_; }
  int cols() const { return cols_; }
  int batch() const { return batch_; }
  cudaDataType_t type() const { return type_; }

 private:
  const cudaDataType_t type_;
  const int rows_, cols_;
  const cublasLtOrder_t order_;
  const int batch_;
  int ld_ = 0;
  int64_t step_ = 0;
  std::vector<float> host_;
  void* data_ = nullptr;
  cublasLtMatrixLayout_t layout_ = nullptr;
};

/// One way of multiplying, with what it needs besides the operands.
class Multiplier {
 public:
  Multiplier(bool ta, bool tb) {
    cublasLtCreate(&handle_);
    cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking);
    cudaMalloc(&workspace_, kWorkspace);
    cublasLtMatmulDescCreate(&desc_, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    const int32_t a = ta ? CUBLAS_OP_T : CUBLAS_OP_N, b = tb ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasLtMatmulDescSetAttribute(desc_, CUBLASLT_MATMUL_DESC_TRANSA, &a, sizeof(a));
    cublasLtMatmulDescSetAttribute(desc_, CUBLASLT_MATMUL_DESC_TRANSB, &b, sizeof(b));
  }
  ~Multiplier() {
    cudaStreamSynchronize(stream_);
    cudaFree(workspace_);
    cublasLtMatmulDescDestroy(desc_);
    cudaStreamDestroy(stream_);
    cublasLtDestroy(handle_);
  }
  Multiplier(const Multiplier&) = delete;
  Multiplier& operator=(const Multiplier&) = delete;

  cublasStatus_t Choose(const Operand& a, const Operand& b, const Operand& c, uint32_t alignment = 4) {
    cublasLtMatmulPreference_t preference = nullptr;
    cublasLtMatmulPreferenceCreate(&preference);
    const uint64_t workspace = kWorkspace;
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                         sizeof(workspace));
    for (const auto attribute :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      cublasLtMatmulPreferenceSetAttribute(preference, attribute, &alignment, sizeof(alignment));
    }
    cublasLtMatmulHeuristicResult_t result;
    int found = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        handle_, desc_, a.layout(), b.layout(), c.layout(), c.layout(), preference, 1, &result, &found);
    cublasLtMatmulPreferenceDestroy(preference);
    if (status == CUBLAS_STATUS_SUCCESS) algo_ = result.algo;
    return status;
  }
  cublasStatus_t Run(float alpha, const Operand& a, const Operand& b, float beta, const Operand& c,
                     int skip = 0, void* workspace = nullptr) {
    return cublasLtMatmul(handle_, desc_, &alpha, static_cast<char*>(a.data()) + skip, a.layout(), b.data(),
                          b.layout(), &beta, c.data(), c.layout(), c.data(), c.layout(), &algo_,
                          workspace == nullptr ? workspace_ : workspace, kWorkspace, stream_);
  }
  void Wait() { cudaStreamSynchronize(stream_); }
  void* workspace() const { return workspace_; }

 private:
  static constexpr size_t kWorkspace = 1 << 16;
  cublasLtHandle_t handle_ = nullptr;
  cudaStream_t stream_ = nullptr;
  cublasLtMatmulDesc_t desc_ = nullptr;
  cublasLtMatmulAlgo_t algo_ = {};
  void* workspace_ = nullptr;
};

/// Types of A and B, of C; beta; batch; m, n, k.
using Case = std::tuple<cudaDataType_t, cudaDataType_t, float, int, std::tuple<int, int, int>>;
class CudaProducts : public testing::TestWithParam<Case> {};

void Compare(Operand& a, bool ta, Operand& b, bool tb, float beta, Operand& old_c, Operand& c) {
  const int k = ta ? a.rows() : a.cols();
  for (int batch = 0; batch < c.batch(); ++batch) {
    for (int row = 0; row < c.rows(); ++row) {
      for (int col = 0; col < c.cols(); ++col) {
        double sum = 0;
        for (int i = 0; i < k; ++i) {
          sum += double{ta ? a.At(batch, i, row) : a.At(batch, row, i)} *
                 (tb ? b.At(batch, col, i) : b.At(batch, i, col));
        }
        sum *= 0.5;
        if (beta != 0) sum += beta * old_c.At(batch, row, col);
        const double ulp = c.type() == CUDA_R_16BF ? std::ldexp(1.0, -8) : std::ldexp(1.0, -22);
        ASSERT_NEAR(c.At(batch, row, col), sum, std::abs(sum) * ulp + 1e-30)
            << batch << " " << row << " " << col;
      }
    }
  }
}

TEST_P(CudaProducts, AreThoseInDoubleForAllTransposesAndOrders) {
  const auto [in, out, beta, batch, shape] = GetParam();
  const auto [m, n, k] = shape;
  for (int way = 0; way < 32; ++way) {
    const bool ta = way & 1, tb = way & 2;
    const auto order = [&](int bit) { return way & bit ? CUBLASLT_ORDER_ROW : CUBLASLT_ORDER_COL; };
    Operand a(in, ta ? k : m, ta ? m : k, order(4), 1, batch),
        b(in, tb ? n : k, tb ? k : n, order(8), 3, batch);
    Operand old_c(out, m, n, order(16), 2, batch, beta == 0), c(out, m, n, order(16), 2, batch, beta == 0);
    const int pads = c.Pads();
    Multiplier multiplier(ta, tb);
    ASSERT_EQ(multiplier.Choose(a, b, c), CUBLAS_STATUS_SUCCESS);
    ASSERT_EQ(multiplier.Run(0.5f, a, b, beta, c), CUBLAS_STATUS_SUCCESS);
    multiplier.Wait();
    c.Download();
    Compare(a, ta, b, tb, beta, old_c, c);
    EXPECT_EQ(c.Pads(), pads);
  }
  EXPECT_TRUE(TakeFaults().empty());
}

INSTANTIATE_TEST_SUITE_P(All, CudaProducts,
                         testing::Combine(testing::Values(CUDA_R_32F), testing::Values(CUDA_R_32F),
                                          testing::Values(0.0f, 1.0f), testing::Values(1, 3),
                                          testing::Values(std::tuple(1, 1, 1), std::tuple(5, 17, 33))));
INSTANTIATE_TEST_SUITE_P(Bf16, CudaProducts,
                         testing::Combine(testing::Values(CUDA_R_16BF),
                                          testing::Values(CUDA_R_32F, CUDA_R_16BF),
                                          testing::Values(0.0f, 1.0f), testing::Values(1, 2),
                                          testing::Values(std::tuple(7, 3, 40))));

TEST(CudaProduct, RefusesWhatTheRealLibraryDoesNotMultiply) {
  constexpr auto kCol = CUBLASLT_ORDER_COL;
  const Operand f32(CUDA_R_32F, 4, 4, kCol, 0, 1), bf16(CUDA_R_16BF, 4, 4, kCol, 0, 1),
      wide(CUDA_R_32F, 4, 5, kCol, 0, 1), two(CUDA_R_32F, 4, 4, kCol, 0, 2);
  Multiplier multiplier(false, false);
  EXPECT_EQ(multiplier.Choose(f32, bf16, f32), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(multiplier.Choose(f32, f32, bf16), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(multiplier.Choose(f32, f32, wide), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(multiplier.Choose(wide, f32, f32), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(multiplier.Choose(two, f32, f32), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(multiplier.Choose(f32, f32, f32, 2), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(multiplier.Run(1, f32, f32, 0, f32), CUBLAS_STATUS_INVALID_VALUE);  // nothing chosen
  ASSERT_EQ(multiplier.Choose(f32, f32, f32, 256), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(multiplier.Run(1, f32, f32, 0, f32, 4),
            CUBLAS_STATUS_INVALID_VALUE);  // chosen for aligned operands
  EXPECT_TRUE(TakeFaults().empty());
}

TEST(CudaProduct, IsRefusedWhereATestBreaksIt) {
  const Operand x(CUDA_R_32F, 4, 4, CUBLASLT_ORDER_COL, 0, 1);
  Multiplier multiplier(false, false);
  BreakCublasLt(CUBLAS_STATUS_ALLOC_FAILED);
  EXPECT_EQ(multiplier.Choose(x, x, x), CUBLAS_STATUS_ALLOC_FAILED);
  BreakCublasLt(CUBLAS_STATUS_SUCCESS);
  SpoilHeuristic(1);
  EXPECT_EQ(multiplier.Choose(x, x, x), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(multiplier.Run(1, x, x, 0, x), CUBLAS_STATUS_INVALID_VALUE);  // it took one that is of no use
  SpoilHeuristic(0);
}

TEST(CudaProduct, MayNotShareItsWorkspaceWithAnotherStream) {
  if (!Watches()) GTEST_SKIP() << "the sanitizer of this build looks at accesses, not the emulation";
  constexpr auto kCol = CUBLASLT_ORDER_COL;
  const Operand a(CUDA_R_32F, 8, 8, kCol, 0, 1), b(CUDA_R_32F, 8, 8, kCol, 0, 1),
      c(CUDA_R_32F, 8, 8, kCol, 0, 1);
  Multiplier one(false, false), other(false, false);
  ASSERT_EQ(one.Choose(a, a, b), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(other.Choose(a, a, c), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(one.Run(1, a, a, 0, b), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(other.Run(1, a, a, 0, c, 0, one.workspace()), CUBLAS_STATUS_SUCCESS);
  one.Wait();
  other.Wait();
  const std::vector<std::string> faults = TakeFaults();
  ASSERT_FALSE(faults.empty());
  EXPECT_NE(faults[0].find("race"), std::string::npos) << faults[0];
}

}  // namespace
}  // namespace metp::emulation
