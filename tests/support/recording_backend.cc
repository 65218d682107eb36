#include "tests/support/recording_backend.h"

#include <algorithm>

namespace metp::testing {

namespace {

Span SpanOf(const Matrix& x) {
  if (x.empty()) return {};
  const auto begin = reinterpret_cast<uintptr_t>(x.data);
  return {begin, begin + static_cast<uintptr_t>(((x.rows - 1) * x.stride + x.cols) * SizeOf(x.type))};
}

std::vector<Access> Accesses(const std::vector<Matrix>& reads, const std::vector<Matrix>& writes) {
  std::vector<Access> accesses;
  for (const Matrix& x : reads) accesses.push_back({SpanOf(x), false});
  for (const Matrix& x : writes) accesses.push_back({SpanOf(x), true});
  return accesses;
}

bool Conflict(const Operation& a, const Operation& b) {
  for (const Access& x : a.accesses) {
    for (const Access& y : b.accesses) {
      if ((x.write || y.write) && x.span.Overlaps(y.span)) return true;
    }
  }
  return false;
}

}  // namespace

int Recorder::Wait(std::string name, int target, int inherited) {
  if (!numbered) return std::max(target, inherited);
  wait_names_.push_back(std::move(name));
  return waits_++ == dropped_wait ? inherited : std::max(target, inherited);
}

void Recorder::Compute(std::string name, std::vector<Matrix> reads, std::vector<Matrix> writes) {
  compute.push_back({std::move(name), Accesses(reads, writes), compute_waits_for_});
}

HopId Recorder::Hop(const Exchange& exchange, int after_compute) {
  const std::string name = "hop " + std::to_string(communication.size() + 1);
  communication_waits_for_ = Wait(name + " waits for compute", after_compute, communication_waits_for_);
  communication.push_back({name, Accesses(exchange.sends, exchange.receives), communication_waits_for_});
  return communication.size();
}

void Recorder::Await(HopId hop) {
  compute_waits_for_ =
      Wait("compute waits for hop " + std::to_string(hop), static_cast<int>(hop), compute_waits_for_);
}

std::set<std::string> Recorder::Races() const {
  std::set<std::string> races;
  for (size_t c = 0; c < compute.size(); ++c) {
    for (size_t m = 0; m < communication.size(); ++m) {
      const bool compute_first = communication[m].waits_for > static_cast<int>(c);
      const bool hop_first = compute[c].waits_for > static_cast<int>(m);
      if (compute_first || hop_first || !Conflict(compute[c], communication[m])) continue;
      races.insert(compute[c].name + " " + std::to_string(c) + " against " + communication[m].name);
    }
  }
  return races;
}

}  // namespace metp::testing
