#include "server/store/memory_store.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"

namespace metp {

absl::StatusOr<StoredState> MemoryStore::Load() {
  StoredState state;
  for (const auto& [id, job] : jobs_) {
    StoredJob& stored = state.jobs.emplace_back();
    stored.record = job.record;
    for (const auto& [number, step] : job.steps) stored.steps.push_back(step);
    for (const auto& [offset, line] : job.output) stored.output.push_back(line);
  }
  std::sort(state.jobs.begin(), state.jobs.end(),
            [](const StoredJob& a, const StoredJob& b) { return a.record.sequence() < b.record.sequence(); });
  state.last_sequence = last_sequence_;
  for (const auto& [name, worker] : workers_) state.workers.push_back(worker);
  for (const auto& [name, taken] : taken_) state.taken.push_back(taken);
  for (const auto& [name, drain] : drains_) state.drains.push_back(drain);
  return state;
}

absl::Status MemoryStore::Write(const StoreChange& change) {
  std::set<std::string> there;
  for (const auto& [id, job] : jobs_) there.insert(id);
  for (const std::string& id : change.deleted) there.erase(id);
  for (const v1::JobRecord& record : change.jobs) {
    if (record.status().id().empty()) return JobWithoutId();
    there.insert(record.status().id());
  }
  for (const StoreChange::Step& step : change.steps) {
    if (there.count(step.job) == 0) return OfNoJob("a step", step.job);
  }
  for (const StoreChange::Output& output : change.output) {
    if (there.count(output.job) == 0) return OfNoJob("output", output.job);
  }

  for (const std::string& id : change.deleted) jobs_.erase(id);
  for (const v1::JobRecord& record : change.jobs) {
    jobs_[record.status().id()].record = record;
    last_sequence_ = std::max(last_sequence_, record.sequence());
  }
  for (const StoreChange::Forget& forget : change.forgotten) {
    const auto found = jobs_.find(forget.job);
    if (found == jobs_.end()) continue;
    std::erase_if(found->second.steps, [&](const auto& step) {
      return step.first > forget.after || (forget.unfinished && !step.second.whole());
    });
  }
  for (const StoreChange::Step& step : change.steps)
    jobs_[step.job].steps[step.step.point().step()] = step.step;
  for (const std::string& name : change.workers_gone) {
    workers_.erase(name);
    taken_.erase(name);
  }
  for (const v1::WorkerHello& worker : change.workers) workers_[worker.name()] = worker;
  for (const StoreChange::Output& output : change.output) {
    std::map<int64_t, v1::LogLine>& lines = jobs_[output.job].output;
    lines.erase(lines.begin(), lines.lower_bound(output.first));
    for (const v1::LogLine& line : output.lines) lines[line.offset()] = line;
  }
  for (const StoreChange::Taken& taken : change.taken) taken_[taken.worker] = taken;
  for (const StoreChange::Drain& drain : change.drains) {
    drains_.erase(drain.worker);
    if (drain.drained) drains_[drain.worker] = drain;
  }
  return absl::OkStatus();
}

}  // namespace metp
