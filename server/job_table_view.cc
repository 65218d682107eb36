// What the status page reads of the job table: few jobs at a time, curves thinned, nothing that grows with their number.

#include <algorithm>
#include <iterator>
#include <limits>

#include "server/job_table.h"

namespace metp {
namespace {

constexpr size_t kRateSteps = 20;
constexpr size_t kLossesShown = 60;          // of a job in the overview
constexpr size_t kOverviewLooks = 8;         // steps that one of those is made of, at most
constexpr size_t kPageLooks = 64;            // the same of a point in a job's page
constexpr size_t kFewestHistoryPoints = 64;  // a job keeps so many, however many jobs there are

/// `points` as at most `limit` ones, each for equally many steps. Of those it looks at some `looks`, evenly, the last among
/// them: the table is locked meanwhile, and a run may have a million.
std::vector<CurvePoint> Thin(const std::vector<v1::StepPoint>& points, size_t limit, size_t looks) {
  std::vector<CurvePoint> curve;
  const size_t stride = (points.size() + limit - 1) / std::max<size_t>(limit, 1);
  for (size_t first = 0; first < points.size(); first += stride) {
    const size_t end = std::min(first + stride, points.size());
    CurvePoint& point = curve.emplace_back();
    point.first_step = points[first].step();
    point.last_step = points[end - 1].step();
    point.lowest_loss = std::numeric_limits<double>::infinity();
    point.highest_loss = -point.lowest_loss;
    double seconds = 0, tokens = 0;
    const size_t step = (end - first + looks - 1) / looks;
    const size_t looked = (end - first + step - 1) / step;
    for (size_t i = end - 1 - (looked - 1) * step; i < end; i += step) {
      point.loss += points[i].loss() / static_cast<double>(looked);
      point.lowest_loss = std::min(point.lowest_loss, points[i].loss());
      point.highest_loss = std::max(point.highest_loss, points[i].loss());
      seconds += points[i].step_seconds();
      tokens += static_cast<double>(points[i].tokens());
    }
    // Rounding may have put it an ulp outside.
    if (point.lowest_loss <= point.highest_loss)
      point.loss = std::clamp(point.loss, point.lowest_loss, point.highest_loss);
    if (seconds > 0) point.tokens_per_second = tokens / seconds;
  }
  return curve;
}

/// The losses of a curve, the last step's own at its end.
std::vector<double> LossTrend(const std::vector<v1::StepPoint>& points) {
  std::vector<double> losses;
  const size_t means = points.size() > kLossesShown ? kLossesShown - 1 : kLossesShown;
  for (const CurvePoint& point : Thin(points, means, kOverviewLooks)) losses.push_back(point.loss);
  if (points.size() > kLossesShown) losses.push_back(points.back().loss());
  return losses;
}

StepRate RateOf(const std::vector<v1::StepPoint>& points) {
  StepRate rate;
  for (size_t i = points.size() - std::min(points.size(), kRateSteps); i < points.size(); ++i) {
    ++rate.steps;
    rate.seconds += points[i].step_seconds();
    rate.tokens += static_cast<double>(points[i].tokens());
    rate.model_flops += points[i].model_flops();
  }
  return rate;
}

/// A copy of few bytes: only the rank with most memory, of those that there are.
v1::JobStatus Brief(const v1::JobStatus& status) {
  v1::JobStatus brief;
  brief.set_id(status.id());
  *brief.mutable_job() = status.job();
  *brief.mutable_plan() = status.plan();
  brief.set_state(status.state());
  brief.set_reason(status.reason());
  brief.set_stopping(status.stopping());
  *brief.mutable_submitted() = status.submitted();
  if (status.has_started()) *brief.mutable_started() = status.started();
  if (status.has_finished()) *brief.mutable_finished() = status.finished();
  brief.set_step(status.step());
  if (status.has_loss()) brief.set_loss(status.loss());
  brief.set_tokens_per_second(status.tokens_per_second());
  brief.set_restarts(status.restarts());
  if (status.has_prediction()) *brief.mutable_prediction() = status.prediction();
  const auto fullest = std::max_element(
      status.ranks().begin(), status.ranks().end(),
      [](const v1::RankStatus& a, const v1::RankStatus& b) { return a.peak_bytes() < b.peak_bytes(); });
  if (fullest != status.ranks().end()) brief.add_ranks()->set_peak_bytes(fullest->peak_bytes());
  return brief;
}

}  // namespace

JobTable::Overview JobTable::ReadOverview(size_t limit, bool with_trends) const {
  Overview overview;
  overview.count = Count();
  MutexLock lock(mutex_);
  const auto status = [this](int64_t sequence) METP_ATTRIBUTE(no_thread_safety_analysis) -> const auto& {
    return jobs_.at(sequence)->record.status();
  };
  for (auto at = queued_.begin(); at != queued_.end() && overview.queued.size() < limit; ++at)
    overview.queued.push_back(Brief(status(*at)));
  for (auto at = active_.rbegin(); at != active_.rend() && overview.active.size() < limit; ++at) {
    overview.active.push_back(Brief(status(*at)));
    if (!with_trends) continue;
    Overview::Trend& trend = overview.trends[overview.active.back().id()];
    const std::vector<v1::StepPoint>& steps = jobs_.at(*at)->progress.points();
    trend.rate = RateOf(steps);
    trend.losses = LossTrend(steps);
  }
  for (auto at = finished_.rbegin(); at != finished_.rend() && overview.finished.size() < limit; ++at)
    overview.finished.push_back(Brief(status(at->second)));
  return overview;
}

absl::StatusOr<JobTable::View> JobTable::ReadView(const std::string& id, size_t points) const {
  MutexLock lock(mutex_);
  const Job* job = FindJob(id);
  if (job == nullptr) return absl::NotFoundError("no job '" + id + "'");
  const std::vector<v1::StepPoint>& steps = job->progress.points();
  return View{.status = job->record.status(),
              .events = {job->record.events().begin(), job->record.events().end()},
              .curve = Thin(steps, points, kPageLooks),
              .steps_known = static_cast<int>(steps.size()),
              .rate = RateOf(steps),
              .history = job->progress.history()};
}

std::map<WaitCause, int> JobTable::CountWaiting() const {
  MutexLock lock(mutex_);
  std::map<WaitCause, int> count;
  for (int cause = 0; cause < kWaitCauses; ++cause) count[static_cast<WaitCause>(cause)] = 0;
  for (const int64_t sequence : queued_)
    ++count[delayed_.count(sequence) > 0 ? WaitCause::kBackoff : jobs_.at(sequence)->wait];
  return count;
}

std::map<std::string, std::chrono::system_clock::time_point> JobTable::LastSteps() const {
  MutexLock lock(mutex_);
  std::map<std::string, std::chrono::system_clock::time_point> last;
  for (const int64_t sequence : active_) {
    const Job& job = *jobs_.at(sequence);
    if (job.last_step.has_value()) last[job.record.status().id()] = *job.last_step;
  }
  return last;
}

void JobTable::BoundHistory(Job& job, size_t before) {
  JobHistory& history = job.progress.history();
  history_points_ = history_points_ - before + history.points().size();
  if (history_points_ <= config_.history_points || history.points().size() < 2 * kFewestHistoryPoints) return;
  history_points_ -= history.points().size();
  history.Halve();
  history_points_ += history.points().size();
}

void JobTable::DropHistory(Job& job) {
  history_points_ -= job.progress.history().points().size();
  job.progress.history().Clear();
}

}  // namespace metp
