#include "worker/model/optimizer.h"

#include <algorithm>
#include <cmath>

namespace metp {

Optimizer::Optimizer(Ring& ring, Replicas& replicas, Parameters& parameters, const v1::TrainSpec& train)
    : ring_(ring),
      replicas_(replicas),
      backend_(ring.backend()),
      parameters_(parameters),
      train_(train),
      totals_(backend_.Allocate(1, 3, DType::kF64, MemoryCategory::kWorkspace)) {}

void Optimizer::AllReduce(const Matrix& values) {
  ThrowIfError(ring_.communicator().AllReduce(values));
  replicas_.AllReduce(values);
}

StepTotals Optimizer::Reduce(const Matrix& loss, int64_t counted, bool leave) {
  const Range own = parameters_.own();
  AllReduce(parameters_.gradient_vectors());
  replicas_.ReduceScatter(parameters_.gradient_matrices());
  backend_.Fill(totals_, 0);
  backend_.Copy(loss, totals_->Cols(0, 1));
  backend_.SumSquares(parameters_.gradient_matrices().Cols(own.begin, own.end), totals_->Cols(1, 2));
  if (ring_.rank() == 0 && replicas_.rank() == 0)
    backend_.SumSquares(parameters_.gradient_vectors(),
                        totals_->Cols(1, 2));  // whole everywhere: counted once
  if (leave) backend_.Fill(totals_->Cols(2, 3), 1);
  AllReduce(totals_);
  double totals[3];
  backend_.CopyToHost(totals_, totals);
  return {counted == 0 ? 0 : totals[0] / static_cast<double>(counted), std::sqrt(totals[1]), totals[2] > 0};
}

void Optimizer::Apply(const StepTotals& totals, int step, double learning_rate) {
  // The fp32 values that the update uses, so that the correction cancels exactly at step 1.
  const double beta1 = static_cast<float>(train_.betas(0)), beta2 = static_cast<float>(train_.betas(1));
  const double clip = train_.clip_norm();
  AdamWStep update;
  update.learning_rate = static_cast<float>(learning_rate);
  update.beta1 = static_cast<float>(beta1);
  update.beta2 = static_cast<float>(beta2);
  update.eps = static_cast<float>(train_.eps());
  update.correction1 = static_cast<float>(1 - std::pow(beta1, step));
  update.correction2 = static_cast<float>(1 - std::pow(beta2, step));
  update.gradient_scale =
      clip > 0 ? static_cast<float>(std::min(1.0, clip / (totals.grad_norm + 1e-6))) : 1.0f;

  AdamWStep decayed = update;
  decayed.weight_decay = static_cast<float>(train_.weight_decay());
  parameters_.Update(decayed, update);
  replicas_.Gather(parameters_.weight_matrices());
}

}  // namespace metp
