#pragma once

// Matrix products by cuBLASLt, sums in fp32. What its heuristic chose for a shape is kept, so that a step asks only once.
// One stream's; not thread-safe.

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <array>
#include <map>
#include <memory>

#include "worker/backend/operands.h"

namespace metp::cuda {

/// c = alpha op(a) op(b) + beta c for each of `batch` products; the operands of the next one lie `step_*` elements on. a and
/// b are both fp32 or both bf16, c is fp32 or theirs.
struct Product {
  float alpha = 1;
  Matrix a;
  Transpose ta = Transpose::kNo;
  Matrix b;
  Transpose tb = Transpose::kNo;
  float beta = 0;
  Matrix c;
  int batch = 1;
  int64_t step_a = 0, step_b = 0, step_c = 0;
};

class Products {
 public:
  /// `workspace`: device memory for cuBLASLt, used on `stream` only.
  Products(cudaStream_t stream, const Matrix& workspace);
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;
  ~Products();

  /// Nothing of the operands is empty. StepError: Internal when cuBLASLt has no way for them, ResourceExhausted when it
  /// finds no memory, FailedPrecondition when it does not go with the device.
  void Run(const Product& product);

 private:
  /// Everything that the choice depends on: sizes, strides, types, transposes, alignments, batch.
  using Shape = std::array<int64_t, 17>;
  struct Plan;

  static Shape ShapeOf(const Product& product);
  std::unique_ptr<Plan> MakePlan(const Product& product) const;
  const Plan& PlanFor(const Product& product);

  const cudaStream_t stream_;
  const Matrix workspace_;
  cublasLtHandle_t handle_ = nullptr;
  std::map<Shape, std::unique_ptr<Plan>> plans_;
};

}  // namespace metp::cuda
