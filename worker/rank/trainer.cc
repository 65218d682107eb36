#include "worker/rank/trainer.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "worker/model/schedule.h"

namespace metp {

namespace {

Recompute RecomputeOf(const v1::Plan& plan) {
  switch (plan.recompute()) {
    case v1::ParallelSpec::RECOMPUTE_NONE:
      return Recompute::kNone;
    case v1::ParallelSpec::RECOMPUTE_FULL:
      return Recompute::kFull;
    default:
      return Recompute::kSelective;
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Trainer>> Trainer::Create(const v1::JobSpec& job, const v1::Plan& plan,
                                                         Backend& backend, Communicator& communicator,
                                                         Communicator* across, const Dataset* dataset) {
  try {
    return std::unique_ptr<Trainer>(new Trainer(job, plan, backend, communicator, across, dataset));
  } catch (const StepError& error) {
    return error.status();
  }
}

Trainer::Trainer(const v1::JobSpec& job, const v1::Plan& plan, Backend& backend, Communicator& communicator,
                 Communicator* across, const Dataset* dataset)
    : job_(job),
      config_(MakeModelConfig(job.model())),
      backend_(backend),
      dataset_(dataset),
      ring_(backend, communicator),
      replicas_(backend, across),
      parameters_(MakeParameters(plan)),
      transformer_(ring_, config_, parameters_,
                   {job.parallel().attention() == v1::ParallelSpec::ATTENTION_TILED, plan.tile_rows(),
                    RecomputeOf(plan), plan.offload_activations()}),
      optimizer_(ring_, replicas_, parameters_, job.train()),
      loss_(backend.Allocate(1, 1, DType::kF64, MemoryCategory::kWorkspace)) {
  InitializeWeights(parameters_, config_, static_cast<uint64_t>(job.train().seed()));
}

Parameters Trainer::MakeParameters(const v1::Plan& plan) {
  const ParameterLayout layout(config_, ring_.size(), ring_.rank(), plan.head_groups());
  return Parameters(backend_, layout, {replicas_.Own(layout.matrix_size()), plan.offload_optimizer()});
}

SequenceRows Trainer::ReadSequence(int64_t k) const {
  if (!backend_.holds_data()) return {{}, {}, {0}};
  SequenceRows rows;
  for (Range chunk : Zigzag{job_.data().sequence_length(), ring_.size()}.Chunks(ring_.rank())) {
    const size_t at = rows.ids.size();
    rows.ids.resize(at + chunk.size());
    rows.targets.resize(at + chunk.size());
    dataset_->Read(k, chunk.begin, chunk.end, rows.ids.data() + at, rows.targets.data() + at);
  }
  rows.document_starts = job_.data().document_mask() ? dataset_->DocumentStarts(k) : std::vector<int64_t>{0};
  return rows;
}

StepTotals Trainer::RunStep(double learning_rate, bool leave) {
  const int64_t s = job_.data().sequence_length();
  const int sequences = job_.train().sequences_per_step(), micro_batch = job_.train().micro_batch();
  const int64_t counted = s * sequences;  // every token of a training sequence has a target
  backend_.Fill(loss_, 0);
  parameters_.ZeroGradients();
  const int ring = replicas_.rank(), rings = replicas_.size();  // rings take turns with the micro-batches
  for (int first = ring * micro_batch; first < sequences; first += rings * micro_batch) {
    std::vector<SequenceRows> batch;
    for (int i = first; i < first + micro_batch; ++i) {
      batch.push_back(ReadSequence(static_cast<int64_t>(step_) * sequences + i));
    }
    transformer_.ForwardBackward(MakeTokenRows(ring_, config_, s, batch), counted, loss_);
  }
  ring_.Drain(Pass::kFinish);
  const StepTotals totals = optimizer_.Reduce(loss_, counted, leave);
  if (std::isfinite(totals.loss) && std::isfinite(totals.grad_norm))
    optimizer_.Apply(totals, step_ + 1, learning_rate);
  return totals;
}

absl::StatusOr<v1::StepReport> Trainer::Step(bool leave) {
  const double learning_rate = LearningRate(job_.train(), step_ + 1);
  if (where_ != nullptr) where_->Enter(step_ + 1);
  const Event start = backend_.Record();
  StepTotals totals;
  try {
    totals = RunStep(learning_rate, leave);
  } catch (const StepError& error) {
    return error.status();
  }
  ++step_;
  leaving_ = totals.leave;
  if (!std::isfinite(totals.loss) || !std::isfinite(totals.grad_norm)) {
    return absl::DataLossError(absl::StrCat("step ", step_, ": loss is ", totals.loss, ", gradient norm is ",
                                            totals.grad_norm,
                                            "; a smaller train.learning_rate or train.clip_norm may help"));
  }
  const Event end = backend_.Record();
  backend_.Synchronize();
  return Report(totals, learning_rate, backend_.Seconds(start, end));
}

v1::StepReport Trainer::Report(const StepTotals& totals, double learning_rate, double seconds) {
  const int64_t s = job_.data().sequence_length(), sequences = job_.train().sequences_per_step();
  v1::StepReport report;
  report.set_rank(replicas_.rank() * ring_.size() + ring_.rank());
  report.set_step(step_);
  report.set_loss(totals.loss);
  report.set_grad_norm(totals.grad_norm);
  report.set_learning_rate(learning_rate);
  report.set_step_seconds(seconds);
  report.set_tokens(s * sequences);
  report.set_model_flops(ModelFlops(config_, s) * static_cast<double>(sequences));
  PassTable passes = ring_.TakeTimes();
  const int replicas = static_cast<int>(Pass::kReplicas);
  passes[replicas] = replicas_.TakeTimes()[replicas];
  const HostLinkTimes host = backend_.host_link().TakeTimes();
  report.mutable_host()->set_copy_seconds(host.copying);
  report.mutable_host()->set_update_seconds(host.updating);
  report.mutable_host()->set_exposed_seconds(host.exposed);
  for (int i = 0; i < kPasses; ++i) {
    v1::PassTimes& times = (*report.mutable_passes())[std::string(PassName(static_cast<Pass>(i)))];
    times.set_compute_seconds(passes[i].compute);
    times.set_communication_seconds(passes[i].communication);
    times.set_exposed_seconds(passes[i].exposed);
    times.set_skew_seconds(passes[i].skew);
    times.set_hops(passes[i].hops);
    times.set_exposed_hops(passes[i].exposed_hops);
  }
  const BytesByCategory current = backend_.ledger().current(), peak = backend_.ledger().at_peak();
  for (int i = 0; i < kMemoryCategories; ++i) {
    const std::string name(MemoryCategoryName(static_cast<MemoryCategory>(i)));
    (*report.mutable_current_bytes())[name] = current[i];
    (*report.mutable_peak_bytes_by_category())[name] = peak[i];
  }
  for (const auto& [tag, bytes] : backend_.ledger().tag_peaks())
    (*report.mutable_peak_bytes_by_tag())[tag] = bytes;
  report.set_peak_bytes(backend_.ledger().peak_total());
  report.set_sent_bytes(ring_.sent_bytes() + replicas_.sent_bytes());
  report.set_host_peak_bytes(backend_.host_link().ledger().peak_total());
  return report;
}

}  // namespace metp
