#pragma once

// The training loop of one rank: data in, one optimizer step at a time, a report of each out. Belongs to the
// rank's compute thread.

#include <memory>

#include "absl/status/statusor.h"
#include "metp/v1/job.pb.h"
#include "metp/v1/plan.pb.h"
#include "metp/v1/report.pb.h"
#include "worker/data/dataset.h"
#include "worker/model/optimizer.h"
#include "worker/model/schedule.h"
#include "worker/model/transformer.h"

namespace metp {

class Trainer {
 public:
  /// Allocates and initializes this rank's share of the model. All arguments must outlive the trainer; `job`
  /// is normalized and valid, communicator.size() is plan.degree(); `across` connects the same place of every
  /// data-parallel ring, null where there is one; `dataset` may be null on a backend that holds no data.
  /// ResourceExhausted when the share does not fit.
  static absl::StatusOr<std::unique_ptr<Trainer>> Create(const v1::JobSpec& job, const v1::Plan& plan,
                                                         Backend& backend, Communicator& communicator,
                                                         Communicator* across, const Dataset* dataset);

  /// See Ring::set_timeline and HostLink::set_timeline.
  void set_timeline(Timeline* timeline) {
    ring_.set_timeline(timeline);
    replicas_.set_timeline(timeline);
    backend_.host_link().set_timeline(timeline);
  }
  /// Where this rank stands, kept up to date from now on. Must outlive the trainer.
  void set_whereabouts(Whereabouts* where) {
    where_ = where;
    ring_.set_whereabouts(where);
    replicas_.set_whereabouts(where);
  }

  /// Steps done so far.
  int step() const { return step_; }
  bool done() const { return step_ >= LastStep(job_.train()); }
  /// Goes on after `step`, whose state the parameters have been given.
  void ResumeAfter(int step) { step_ = step; }
  Parameters& parameters() { return parameters_; }

  /// Runs the next optimizer step, all ranks together. The error of a broken ring or of a full device as it
  /// came; DataLoss, naming the step, where the loss or the gradient norm is not finite: weights are left as
  /// they were. `leave`: this rank is asked to leave after the step.
  absl::StatusOr<v1::StepReport> Step(bool leave = false);
  /// In the last step some rank was asked to leave: the same on every rank.
  bool leaving() const { return leaving_; }

 private:
  Trainer(const v1::JobSpec& job, const v1::Plan& plan, Backend& backend, Communicator& communicator,
          Communicator* across, const Dataset* dataset);
  Parameters MakeParameters(const v1::Plan& plan);
  SequenceRows ReadSequence(int64_t k) const;
  StepTotals RunStep(double learning_rate, bool leave);
  v1::StepReport Report(const StepTotals& totals, double learning_rate, double seconds);

  const v1::JobSpec& job_;
  const ModelConfig config_;
  Backend& backend_;
  const Dataset* const dataset_;
  Ring ring_;
  Replicas replicas_;
  Parameters parameters_;
  Transformer transformer_;
  Optimizer optimizer_;
  Tensor loss_;  // [1, 1] fp64
  int step_ = 0;
  bool leaving_ = false;
  Whereabouts* where_ = nullptr;
};

}  // namespace metp
