#include "server/job_progress.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace metp {
namespace {

constexpr size_t kRateSteps = 20;  // rates and ratios are taken over the last steps, this many at most

void AddTotals(const v1::StepReport& report, v1::RankStatus& rank) {
  rank.set_step(report.step());
  rank.set_peak_bytes(report.peak_bytes());
  *rank.mutable_peak_bytes_by_category() = report.peak_bytes_by_category();
  *rank.mutable_current_bytes() = report.current_bytes();
  rank.set_sent_bytes(report.sent_bytes());
  v1::HostTimes& host = *rank.mutable_host();
  host.set_copy_seconds(host.copy_seconds() + report.host().copy_seconds());
  host.set_update_seconds(host.update_seconds() + report.host().update_seconds());
  host.set_exposed_seconds(host.exposed_seconds() + report.host().exposed_seconds());
  for (const auto& [name, times] : report.passes()) {
    v1::PassTimes& total = (*rank.mutable_passes())[name];
    total.set_compute_seconds(total.compute_seconds() + times.compute_seconds());
    total.set_communication_seconds(total.communication_seconds() + times.communication_seconds());
    total.set_exposed_seconds(total.exposed_seconds() + times.exposed_seconds());
    total.set_skew_seconds(total.skew_seconds() + times.skew_seconds());
  }
}

}  // namespace

bool JobProgress::Add(const v1::StepReport& report, v1::RankStatus& rank, v1::JobStatus& job) {
  if (report.step() <= rank.step()) return false;
  AddTotals(report, rank);
  history_.Add(report, job.ranks_size());
  Partial& partial = partial_[report.step()];
  v1::StepPoint& point = partial.point;
  if (partial.reported == 0 || report.rank() == 0) {
    point.set_step(report.step());
    point.set_loss(report.loss());
    point.set_grad_norm(report.grad_norm());
    point.set_learning_rate(report.learning_rate());
    point.set_tokens(report.tokens());
    point.set_model_flops(report.model_flops());
  }
  point.set_step_seconds(std::max(point.step_seconds(), report.step_seconds()));
  double& compute = partial.compute[report.rank()];
  for (const auto& [name, times] : report.passes()) compute += times.compute_seconds();
  changed_.insert(report.step());
  if (++partial.reported == job.ranks_size()) {
    const v1::StepPoint whole = std::move(point);
    // Of earlier steps reports were lost: they are done, as the others have said.
    while (partial_.begin()->first < report.step()) PublishFirst(job);
    compute_.push_back(std::move(partial.compute));
    if (compute_.size() > kRateSteps) compute_.pop_front();
    partial_.erase(report.step());
    Publish(whole, job);
  }
  return true;
}

std::vector<v1::StepPoint>::const_iterator JobProgress::After(int step) const {
  return std::upper_bound(points_.begin(), points_.end(), step,
                          [](int value, const v1::StepPoint& point) { return value < point.step(); });
}

void JobProgress::Publish(const v1::StepPoint& point, v1::JobStatus& job) {
  // A later attempt repeats the steps after its checkpoint: its points replace the earlier ones.
  const auto later = After(point.step() - 1);
  if (later != points_.end()) {
    forget_after_ = std::min(forget_after_.value_or(point.step()), point.step());
    points_.erase(later, points_.end());
    for (const auto& [step, partial] : partial_) changed_.insert(step);  // the store forgets those too
  }
  points_.push_back(point);
  ++published_;
  Summarize(job);
}

void JobProgress::Summarize(v1::JobStatus& job) const {
  if (points_.empty()) return;
  job.set_step(points_.back().step());
  job.set_loss(points_.back().loss());
  double seconds = 0, tokens = 0;
  const size_t first = points_.size() > kRateSteps ? points_.size() - kRateSteps : 0;
  for (size_t i = first; i < points_.size(); ++i) {
    seconds += points_[i].step_seconds();
    tokens += static_cast<double>(points_[i].tokens());
  }
  job.set_tokens_per_second(seconds > 0 ? tokens / seconds : 0);
}

void JobProgress::PublishRest(v1::JobStatus& job) {
  while (!partial_.empty()) PublishFirst(job);
}

void JobProgress::PublishFirst(v1::JobStatus& job) {
  const v1::StepPoint point = partial_.begin()->second.point;
  partial_.erase(partial_.begin());
  changed_.insert(point.step());
  Publish(point, job);
}

void JobProgress::Fill(const google::protobuf::RepeatedPtrField<v1::StepPoint>& points, int after,
                       v1::JobStatus& job) {
  for (const v1::StepPoint& point : points) {
    const auto at = points_.begin() + (After(point.step() - 1) - points_.cbegin());
    if (point.step() <= after || (at != points_.end() && at->step() == point.step())) continue;
    points_.insert(at, point);
    partial_.erase(point.step());
    changed_.insert(point.step());
  }
  Summarize(job);
}

std::vector<int> JobProgress::TakeStragglers(double ratio, v1::JobStatus& job) {
  std::vector<int> fresh;
  const size_t ranks = static_cast<size_t>(job.ranks_size());
  if (compute_.size() < kRateSteps || ranks < 2) return fresh;
  std::vector<double> sums(ranks);
  for (const auto& step : compute_) {
    for (const auto& [rank, seconds] : step) sums[static_cast<size_t>(rank)] += seconds;
  }
  std::vector<double> sorted = sums;
  std::sort(sorted.begin(), sorted.end());
  const double median = sorted[(ranks - 1) / 2];
  if (median <= 0) return fresh;
  for (size_t r = 0; r < ranks; ++r) {
    const int rank = static_cast<int>(r);
    job.mutable_ranks(rank)->set_straggler_ratio(sums[r] / median);
    if (sums[r] >= ratio * median && stragglers_.insert(rank).second) fresh.push_back(rank);
  }
  return fresh;
}

void JobProgress::StartAttempt() {
  compute_.clear();
  stragglers_.clear();
  history_.StartAttempt();
  partial_.clear();
  forget_unfinished_ = true;
}

void JobProgress::Load(const std::vector<v1::StoredStep>& steps, v1::JobStatus& job) {
  for (const v1::StoredStep& step : steps) {
    if (step.whole()) points_.push_back(step.point());
  }
  for (const v1::StoredStep& step : steps) {
    if (!step.whole())  // perhaps of a step that an earlier attempt has done: it is repeated then
      partial_[step.point().step()] = {step.point(), step.reported()};
  }
  Summarize(job);
}

void JobProgress::AddChanges(const std::string& job, StoreChange& change) const {
  if (forget_after_ || forget_unfinished_) {
    change.forgotten.push_back(
        {job, forget_after_.value_or(std::numeric_limits<int>::max()), forget_unfinished_});
  }
  for (const int number : changed_) {
    v1::StoredStep step;
    if (const auto partial = partial_.find(number); partial != partial_.end()) {
      *step.mutable_point() = partial->second.point;
      step.set_reported(partial->second.reported);
    } else if (const auto whole = After(number - 1); whole != points_.end() && whole->step() == number) {
      *step.mutable_point() = *whole;
      step.set_whole(true);
    } else {
      continue;  // gone again
    }
    change.steps.push_back({job, std::move(step)});
  }
}

void JobProgress::ClearChanges() {
  changed_.clear();
  forget_after_.reset();
  forget_unfinished_ = false;
}

}  // namespace metp
