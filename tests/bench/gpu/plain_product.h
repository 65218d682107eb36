#pragma once

// The peer of our products: the same operands multiplied by plain calls of cuBLASLt, with whichever of the algorithms
// that its heuristic offers turns out fastest.

#include <cublasLt.h>

#include <vector>

#include "tests/bench/gpu/bench.h"
#include "worker/backend/cuda/gemm.h"

namespace metp::gpu_bench {

class PlainProduct {
 public:
  /// Asks for all algorithms for products like `like`, a batch of one. StepError Internal: there are none.
  PlainProduct(Bench& bench, const cuda::Product& like);
  PlainProduct(const PlainProduct&) = delete;
  PlainProduct& operator=(const PlainProduct&) = delete;
  ~PlainProduct();

  /// Tries each algorithm some times; `product` gives the operands of a round.
  void ChooseFastest(const std::function<const cuda::Product&(int round)>& product);
  int algorithms() const { return static_cast<int>(algorithms_.size()); }
  void Run(const cuda::Product& product) const { Check(Start(product, chosen_)); }

 private:
  static void Check(cublasStatus_t status);
  cublasStatus_t Start(const cuda::Product& product, size_t algorithm) const;

  Bench& bench_;
  Tensor workspace_;
  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulDesc_t operation_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr, b_ = nullptr, c_ = nullptr;  // the library's A is our b
  std::vector<cublasLtMatmulAlgo_t> algorithms_;
  size_t chosen_ = 0;
};

}  // namespace metp::gpu_bench
