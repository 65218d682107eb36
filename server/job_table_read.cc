// The reading half of the job table: nothing here changes a job.

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/job_table.h"
#include "worker/model/plan.h"
#include "worker/model/schedule.h"

namespace metp {
namespace {

absl::Status NoSuchJob(const std::string& reference) {
  return absl::NotFoundError(absl::StrCat("no job '", reference, "'; `metpctl get` lists them"));
}

/// Where a job saves, however it is spelt; empty: nowhere.
std::string FolderOf(const v1::JobSpec& job) {
  if (!job.has_checkpoint()) return "";
  std::string folder = std::filesystem::path(job.checkpoint().directory()).lexically_normal();
  while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  return folder;
}

/// Seconds that a job is expected to take from `step` on: by its own last steps, or else as it was predicted.
std::optional<double> SecondsFrom(const v1::JobStatus& status, const std::vector<v1::StepPoint>& points,
                                  int step) {
  constexpr size_t kSteps = 20;
  const v1::TrainSpec& train = status.job().train();
  double seconds = 0;
  size_t count = 0;
  for (size_t i = points.size() - std::min(points.size(), kSteps); i < points.size(); ++i, ++count)
    seconds += points[i].step_seconds();
  if (count > 0) {
    seconds /= static_cast<double>(count);
  } else if (status.has_prediction()) {
    seconds = status.prediction().step_seconds();
  } else {
    return std::nullopt;
  }
  return seconds * std::max(0, LastStep(train) - step);
}

}  // namespace

absl::StatusOr<std::string> JobTable::Find(const std::string& reference) const {
  if (reference.empty())
    return absl::InvalidArgumentError("which job? Found an empty name, expected an id or a name");
  MutexLock lock(mutex_);
  if (FindJob(reference) != nullptr) return reference;
  std::vector<std::string> candidates;
  for (auto at = jobs_.rbegin(); at != jobs_.rend(); ++at) {
    const v1::JobStatus& status = at->second->record.status();
    if (status.job().name() == reference) return status.id();
    if (absl::StartsWith(status.id(), reference)) candidates.push_back(status.id());
  }
  if (candidates.empty()) return NoSuchJob(reference);
  if (candidates.size() == 1) return candidates.front();
  const size_t all = candidates.size();
  if (all > 5) candidates.resize(5);
  return absl::InvalidArgumentError(absl::StrCat("'", reference, "' is the beginning of ", all, " jobs: ",
                                                 absl::StrJoin(candidates, ", "), all > 5 ? ", ..." : ""));
}

absl::StatusOr<v1::JobStatus> JobTable::Get(const std::string& id) const {
  MutexLock lock(mutex_);
  const Job* job = FindJob(id);
  if (job == nullptr) return NoSuchJob(id);
  return job->record.status();
}

std::vector<v1::JobRecord> JobTable::List(int64_t after, int limit) const {
  MutexLock lock(mutex_);
  std::vector<v1::JobRecord> page;
  for (auto at = jobs_.upper_bound(after); at != jobs_.end() && static_cast<int>(page.size()) < limit; ++at) {
    page.push_back(at->second->record);
    page.back().mutable_status()->clear_ranks();
  }
  return page;
}

std::vector<WaitingJob> JobTable::Queued() const {
  MutexLock lock(mutex_);
  std::vector<WaitingJob> queued;
  queued.reserve(queued_.size());
  for (const int64_t sequence : queued_) {
    const Job& job = *jobs_.at(sequence);
    const v1::JobStatus& status = job.record.status();
    WaitingJob& waiting = queued.emplace_back();
    waiting.id = status.id();
    waiting.degree = status.plan().degree();
    waiting.rings = RingsOf(status.plan());
    waiting.priority = status.job().priority();
    waiting.quota = status.job().namespace_();
    waiting.folder = FolderOf(status.job());
    waiting.delayed = job.not_before.has_value() && *job.not_before > clock_.Now();
    waiting.pool = PoolOf(status.plan().device());
    waiting.seconds = SecondsFrom(status, job.progress.points(), status.checkpoint_step());
  }
  return queued;
}

std::vector<RunningJob> JobTable::Running() const {
  MutexLock lock(mutex_);
  std::vector<RunningJob> running;
  for (const int64_t sequence : active_) {
    const Job& job = *jobs_.at(sequence);
    const v1::JobStatus& status = job.record.status();
    running.push_back({status.id(), status.ranks_size(), status.job().namespace_(), FolderOf(status.job()),
                       SecondsFrom(status, job.progress.points(), status.step()),
                       PoolOf(status.plan().device())});
  }
  return running;
}

std::map<v1::JobStatus::State, int> JobTable::Count() const {
  MutexLock lock(mutex_);
  std::map<v1::JobStatus::State, int> count;
  for (int state = v1::JobStatus::QUEUED; state <= v1::JobStatus::CANCELLED; ++state)
    count[static_cast<v1::JobStatus::State>(state)] = 0;
  count[v1::JobStatus::QUEUED] = static_cast<int>(queued_.size());
  for (const int64_t sequence : active_) ++count[jobs_.at(sequence)->record.status().state()];
  for (const auto& [end, sequence] : finished_) ++count[jobs_.at(sequence)->record.status().state()];
  return count;
}

std::vector<v1::JobStatus> JobTable::Active() const {
  MutexLock lock(mutex_);
  std::vector<v1::JobStatus> active;
  for (const int64_t sequence : active_) active.push_back(jobs_.at(sequence)->record.status());
  return active;
}

uint64_t JobTable::schedule_version() const {
  MutexLock lock(mutex_);
  return schedule_version_;
}

std::map<std::string, std::pair<v1::Plan, v1::Prediction>> JobTable::Shrunk() const {
  MutexLock lock(mutex_);
  std::map<std::string, std::pair<v1::Plan, v1::Prediction>> shrunk;
  for (const int64_t sequence : shrunk_) {
    const v1::JobRecord& record = jobs_.at(sequence)->record;
    shrunk[record.status().id()] = {record.first_plan(), record.first_prediction()};
  }
  return shrunk;
}

bool JobTable::HasChanges() const {
  MutexLock lock(mutex_);
  return !changed_.empty();
}

std::vector<LiveRank> JobTable::LiveRanks() const {
  MutexLock lock(mutex_);
  std::vector<LiveRank> live;
  for (const int64_t sequence : active_) {
    const Job& job = *jobs_.at(sequence);
    const v1::JobStatus& status = job.record.status();
    for (const v1::RankStatus& rank : status.ranks()) {
      if (rank.state() == v1::RankStatus::GONE) continue;
      live.push_back({status.id(), status.attempt(), rank.rank(), rank.worker(), rank.state(), rank.step(),
                      job.stop.has_value() && job.stop->sent, status.reason()});
    }
  }
  return live;
}

std::vector<v1::JobRecord> JobTable::Snapshot() const {
  MutexLock lock(mutex_);
  std::vector<v1::JobRecord> all;
  all.reserve(jobs_.size());
  for (const auto& [sequence, job] : jobs_) all.push_back(job->record);
  return all;
}

absl::StatusOr<JobTable::Update> JobTable::Read(const std::string& id, int after_step, int limit) const {
  MutexLock lock(mutex_);
  const Job* job = FindJob(id);
  if (job == nullptr) return NoSuchJob(id);
  Update update;
  update.version = job->version;
  update.status = job->record.status();
  const std::vector<v1::StepPoint>& points = job->progress.points();
  const auto first = job->progress.After(after_step);
  const auto last = first + std::min<std::ptrdiff_t>(limit, points.end() - first);
  update.steps.assign(first, last);
  update.more = last != points.end();
  return update;
}

absl::StatusOr<JobTable::LogUpdate> JobTable::ReadLog(const std::string& id, int64_t offset,
                                                      std::optional<int> rank, size_t max_bytes,
                                                      bool stored) const {
  MutexLock lock(mutex_);
  const Job* job = FindJob(id);
  if (job == nullptr) return NoSuchJob(id);
  LogUpdate update;
  update.read = job->log.ReadFrom(offset, rank, max_bytes, stored);
  update.terminal = IsTerminal(job->record.status().state()) && job->log.stored();
  return update;
}

}  // namespace metp
