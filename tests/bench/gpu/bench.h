#pragma once

// What every part of the benchmark uses: a backend on device 0, random operands, a clock, and the rates found so far.

#include <functional>
#include <random>
#include <vector>

#include "tests/bench/gpu/report.h"
#include "tests/bench/gpu/shapes.h"
#include "worker/backend/cuda/cuda_backend.h"
#include "worker/rank/probe.h"

namespace metp::gpu_bench {

/// Of this run; per second.
struct Rates {
  double copied_bytes = 0;   // read and written by a copy on the device
  double product_flops = 0;  // of the large square product
  double attention_forward_flops = 0, attention_backward_flops = 0;  // a head group's full block
  double peer_forward_flops = 0, peer_backward_flops = 0;            // the library's alone; 0: none
  double moved_bytes = 0;                                            // by the memory-bound kernels together
  double kernel_seconds = 0;                                         // start of one kernel behind another
  std::vector<Sample> products;                                      // flops and bytes of ours, by pass
};

/// Attention as a rank has it: by the library where it is faster.
cuda::CudaOptions BackendOptions();

/// A call in one of its rounds. Rounds take turns with the sets of operands.
using Call = std::function<void(int round)>;

class Bench {
 public:
  Bench(const Shapes& shapes, Report& report);

  const Shapes& shapes() const { return shapes_; }
  Report& report() { return report_; }
  Rates& rates() { return rates_; }
  cuda::CudaBackend& backend() { return backend_; }

  /// fp32 or bf16, evenly between -1 and 1.
  Tensor Values(int64_t rows, int64_t cols, DType type = DType::kBF16);
  /// int32 [values.size() / cols, cols].
  Tensor Integers(const std::vector<int32_t>& values, int64_t cols = 1);
  std::vector<int32_t> RandomIntegers(int64_t count, int64_t below);

  /// Sets of operands of `bytes` each such that a set is out of the L2 when its turn comes again.
  int SetsFor(int64_t bytes) const;
  /// `make()` that many times.
  template <typename T>
  std::vector<T> Sets(int64_t bytes, const std::function<T()>& make) const {
    std::vector<T> sets;
    for (int i = SetsFor(bytes); i > 0; --i) sets.push_back(make());
    return sets;
  }

  /// Median seconds of each call by device events, after warm-up; the calls alternate. `rounds` 0: the shapes' number.
  std::vector<double> Medians(const std::vector<Call>& calls, int rounds = 0);
  double Median(const Call& call) { return Medians({call})[0]; }

 private:
  const Shapes shapes_;
  Report& report_;
  Rates rates_;
  MemoryLedger ledger_;
  cuda::CudaBackend backend_;
  int64_t l2_bytes_ = 0;
  std::mt19937 random_{1};
  Tensor pool_;  // random fp32 values from which operands are made
};

/// The middle one; of an even number the later of the two.
double MedianOf(std::vector<double> values);

}  // namespace metp::gpu_bench
