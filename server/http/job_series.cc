#include "server/http/job_series.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/support/figures.h"
#include "worker/ring/passes.h"
#include "worker/telemetry/ledger.h"

namespace metp {
namespace {

constexpr int kLately = 20;  // steps, or a little more where points are made of several

/// The places of `names` in the order of `place`, then of the alphabet.
std::vector<size_t> Order(const std::vector<std::string>& names, size_t (*place)(const std::string&)) {
  std::vector<size_t> order(names.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::pair(place(names[a]), names[a]) < std::pair(place(names[b]), names[b]);
  });
  return order;
}

void Add(v1::PassTimes& to, const v1::PassTimes& from) {
  to.set_compute_seconds(to.compute_seconds() + from.compute_seconds());
  to.set_communication_seconds(to.communication_seconds() + from.communication_seconds());
  to.set_exposed_seconds(to.exposed_seconds() + from.exposed_seconds());
  to.set_skew_seconds(to.skew_seconds() + from.skew_seconds());
}

double Hidden(double exposed, double communication) {
  if (communication <= 0) return std::numeric_limits<double>::quiet_NaN();
  return std::clamp(1 - exposed / communication, 0.0, 1.0);
}

JobHistory::Pass PassAt(const JobHistory::Point& point, size_t pass) {
  return pass < point.passes.size() ? point.passes[pass] : JobHistory::Pass{};
}

/// The last points, which hold kLately steps, if there are so many.
std::vector<JobHistory::Point>::const_iterator Lately(const JobHistory& history, int& steps) {
  auto first = history.points().end();
  for (steps = 0; first != history.points().begin() && steps < kLately;) steps += (--first)->steps;
  return first;
}

}  // namespace

size_t CategoryPlace(const std::string& name) {
  int place = 0;
  while (place < kMemoryCategories && MemoryCategoryName(static_cast<MemoryCategory>(place)) != name) ++place;
  return static_cast<size_t>(place);
}

size_t PassPlace(const std::string& name) {
  int place = 0;
  while (place < kPasses && PassName(static_cast<Pass>(place)) != name) ++place;
  return static_cast<size_t>(place);
}

std::string CategoryColor(const std::string& name) { return absl::StrCat("--s", CategoryPlace(name)); }

double MeasuredMfu(const v1::JobStatus& status) {
  const v1::Prediction& plan = status.prediction();
  // A token takes the same arithmetic in both.
  return plan.tokens_per_second() > 0 ? plan.mfu() * status.tokens_per_second() / plan.tokens_per_second()
                                      : 0;
}

std::string ShortTime(double seconds) {
  if (seconds >= 1) return Duration(seconds);
  return seconds >= 1e-3 || seconds <= 0 ? absl::StrFormat("%.1f ms", 1e3 * seconds)
                                         : absl::StrFormat("%.0f µs", 1e6 * seconds);
}

std::string PassLabel(std::string name) {
  std::replace(name.begin(), name.end(), '_', ' ');
  return name;
}

JobHistory Thinned(JobHistory history, size_t limit) {
  while (history.points().size() > std::max<size_t>(limit, 1)) history.Halve();
  return history;
}

std::vector<MemoryOver> MemoryOverSteps(const JobHistory& history) {
  std::vector<MemoryOver> categories;
  for (const size_t at : Order(history.categories(), CategoryPlace)) {
    MemoryOver& category = categories.emplace_back();
    category.name = history.categories()[at];
    category.color = CategoryColor(category.name);
    const auto value = [at](const std::vector<float>& bytes) { return at < bytes.size() ? bytes[at] : 0.0; };
    for (const JobHistory::Point& point : history.points()) {
      category.peak.push_back(value(point.peak_bytes));
      category.current.push_back(value(point.current_bytes));
    }
  }
  return categories;
}

std::vector<PassOver> PassesOverSteps(const JobHistory& history) {
  int steps = 0;
  const auto lately = Lately(history, steps);
  std::vector<PassOver> passes;
  for (const size_t at : Order(history.passes(), PassPlace)) {
    PassOver& pass = passes.emplace_back();
    pass.name = history.passes()[at];
    double exposed = 0, communication = 0;
    for (auto point = history.points().begin(); point != history.points().end(); ++point) {
      const JobHistory::Pass seconds = PassAt(*point, at);
      pass.hidden.push_back(Hidden(seconds.exposed, seconds.communication));
      pass.communicates = pass.communicates || seconds.communication > 0;
      if (point < lately) continue;
      exposed += seconds.exposed;
      communication += seconds.communication;
    }
    pass.recent = communication > 0 ? Hidden(exposed, communication) : 1;
  }
  return passes;
}

RecentPasses PassesLately(const JobHistory& history, int ranks) {
  RecentPasses recent;
  const auto lately = Lately(history, recent.steps);
  const float share = 1.0F / static_cast<float>(std::max(1, recent.steps) * std::max(1, ranks));
  for (const size_t at : Order(history.passes(), PassPlace)) {
    JobHistory::Pass sum;
    for (auto point = lately; point != history.points().end(); ++point) {
      const JobHistory::Pass seconds = PassAt(*point, at);
      sum.compute += share * seconds.compute;
      sum.communication += share * seconds.communication;
      sum.exposed += share * seconds.exposed;
      sum.skew += share * seconds.skew;
    }
    recent.passes.emplace_back(history.passes()[at], sum);
  }
  return recent;
}

std::vector<std::pair<std::string, v1::PassTimes>> PassTotals(const v1::JobStatus& status) {
  std::map<std::pair<size_t, std::string>, v1::PassTimes> passes;
  v1::PassTimes all;
  for (const v1::RankStatus& rank : status.ranks()) {
    for (const auto& [name, times] : rank.passes()) {
      Add(passes[{PassPlace(name), name}], times);
      Add(all, times);
    }
  }
  std::vector<std::pair<std::string, v1::PassTimes>> rows;
  for (const auto& [key, times] : passes) rows.emplace_back(key.second, times);
  if (!rows.empty()) rows.emplace_back("all passes", all);
  return rows;
}

}  // namespace metp
