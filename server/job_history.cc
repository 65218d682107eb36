#include "server/job_history.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace metp {
namespace {

/// The place of `name`, a new one if there is room; kMostNames if there is none.
size_t Index(std::vector<std::string>& names, const std::string& name) {
  const auto found = std::find(names.begin(), names.end(), name);
  const size_t at = static_cast<size_t>(found - names.begin());
  if (found == names.end() && at < JobHistory::kMostNames) names.push_back(name);
  return at;
}

std::vector<float> ByCategory(std::vector<std::string>& names,
                              const google::protobuf::Map<std::string, int64_t>& bytes) {
  std::vector<float> values;
  for (const auto& [name, value] : bytes) {
    const size_t at = Index(names, name);
    if (at == JobHistory::kMostNames) continue;
    if (values.size() <= at) values.resize(at + 1);
    values[at] = static_cast<float>(value);
  }
  return values;
}

void KeepLarger(std::vector<float>& held, std::vector<float> other) {
  const auto sum = [](const std::vector<float>& values) {
    return std::accumulate(values.begin(), values.end(), 0.0);
  };
  if (held.empty() || sum(other) > sum(held)) held = std::move(other);
}

void AddPass(JobHistory::Pass& to, const JobHistory::Pass& from) {
  to.compute += from.compute;
  to.communication += from.communication;
  to.exposed += from.exposed;
  to.skew += from.skew;
}

void Merge(JobHistory::Point& to, JobHistory::Point&& later) {
  to.last_step = later.last_step;
  to.steps += later.steps;
  to.seconds += later.seconds;
  KeepLarger(to.peak_bytes, std::move(later.peak_bytes));
  KeepLarger(to.current_bytes, std::move(later.current_bytes));
  to.passes.resize(std::max(to.passes.size(), later.passes.size()));
  for (size_t i = 0; i < later.passes.size(); ++i) AddPass(to.passes[i], later.passes[i]);
}

}  // namespace

void JobHistory::Add(const v1::StepReport& report, int ranks) {
  Partial& partial = partial_[report.step()];
  Point& point = partial.point;
  point.first_step = point.last_step = report.step();
  point.steps = 1;
  point.seconds = std::max(point.seconds, static_cast<float>(report.step_seconds()));
  KeepLarger(point.peak_bytes, ByCategory(categories_, report.peak_bytes_by_category()));
  KeepLarger(point.current_bytes, ByCategory(categories_, report.current_bytes()));
  for (const auto& [name, times] : report.passes()) {
    const size_t at = Index(passes_, name);
    if (at == kMostNames) continue;
    if (point.passes.size() <= at) point.passes.resize(at + 1);
    AddPass(point.passes[at],
            {static_cast<float>(times.compute_seconds()), static_cast<float>(times.communication_seconds()),
             static_cast<float>(times.exposed_seconds()), static_cast<float>(times.skew_seconds())});
  }
  if (++partial.reported < ranks) return;
  // Of earlier steps reports were lost: they are done, as the others have said.
  while (!partial_.empty() && partial_.begin()->first <= report.step()) {
    Point whole = std::move(partial_.begin()->second.point);
    partial_.erase(partial_.begin());
    Publish(std::move(whole));
  }
}

void JobHistory::Publish(Point point) {
  while (!points_.empty() && points_.back().last_step >= point.first_step) points_.pop_back();
  if (!points_.empty() && points_.back().steps < stride_) {
    Merge(points_.back(), std::move(point));
  } else {
    points_.push_back(std::move(point));
  }
  if (points_.size() > kMostPoints) Halve();
}

void JobHistory::Halve() {
  std::vector<Point> merged;
  merged.reserve(points_.size() / 2 + 1);
  for (size_t i = 0; i < points_.size(); ++i) {
    if (i % 2 == 0) {
      merged.push_back(std::move(points_[i]));
    } else {
      Merge(merged.back(), std::move(points_[i]));
    }
  }
  points_ = std::move(merged);
  stride_ *= 2;
}

void JobHistory::Clear() { *this = JobHistory(); }

}  // namespace metp
