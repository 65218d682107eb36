#pragma once

// The end of a step: gradients summed over ranks where they are replicated and over data-parallel rings, clipped by
// their global norm, applied by AdamW.

#include "metp/v1/job.pb.h"
#include "worker/model/parameters.h"
#include "worker/ring/replicas.h"
#include "worker/ring/ring.h"

namespace metp {

struct StepTotals {
  double loss = 0;       // mean over the counted targets of the global batch
  double grad_norm = 0;  // before clipping
  bool leave = false;    // a rank was asked to leave
};

class Optimizer {
 public:
  /// All must outlive the optimizer.
  Optimizer(Ring& ring, Replicas& replicas, Parameters& parameters, const v1::TrainSpec& train);

  /// Sums the vectors' gradients and `loss` ([1, 1] fp64, this rank's sum of losses) over all ranks, and the own
  /// elements' gradients over rings. Every shard's gradient must be home (Ring::Drain). The same on every rank, bit
  /// for bit. `leave`: this rank is to leave after the step, which all learn. Throws StepError.
  StepTotals Reduce(const Matrix& loss, int64_t counted, bool leave);

  /// One AdamW update (Loshchilov, Hutter 2019): decay on matrices only, bias-corrected moments, gradients
  /// scaled by min(1, clip_norm / (norm + 1e-6)); then rings exchange the weights they updated. `step` counts
  /// from 1.
  void Apply(const StepTotals& totals, int step, double learning_rate);

 private:
  /// Over all ranks of all rings. fp32 or fp64.
  void AllReduce(const Matrix& values);

  Ring& ring_;
  Replicas& replicas_;
  Backend& backend_;
  Parameters& parameters_;
  const v1::TrainSpec train_;
  Tensor totals_;  // [1, 3] fp64: loss, sum of squares, ranks that are to leave
};

}  // namespace metp
