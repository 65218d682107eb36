// The reading half of the job table: nothing here changes a job.

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/job_table.h"
#include "worker/model/plan.h"

namespace metp {
namespace {

absl::Status NoSuchJob(const std::string& reference) {
  return absl::NotFoundError(absl::StrCat("no job '", reference, "'; `metpctl get` lists them"));
}

}  // namespace

std::optional<Clock::Time> JobTable::NextStop() const {
  MutexLock lock(mutex_);
  std::optional<Clock::Time> next;
  for (const auto& [sequence, job] : jobs_) {
    if (!job->stop.has_value() || job->stop->sent || IsTerminal(job->record.status().state())) continue;
    if (!next.has_value() || job->stop->at < *next) next = job->stop->at;
  }
  return next;
}

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
  for (const auto& [sequence, job] : jobs_) {
    const v1::JobStatus& status = job->record.status();
    if (status.state() == v1::JobStatus::QUEUED)
      queued.push_back({status.id(), status.plan().degree(), RingsOf(status.plan())});
  }
  return queued;
}

std::vector<LiveRank> JobTable::LiveRanks() const {
  MutexLock lock(mutex_);
  std::vector<LiveRank> live;
  for (const auto& [sequence, job] : jobs_) {
    const v1::JobStatus& status = job->record.status();
    if (IsTerminal(status.state())) continue;
    for (const v1::RankStatus& rank : status.ranks()) {
      if (rank.state() == v1::RankStatus::GONE) continue;
      live.push_back({status.id(), status.attempt(), rank.rank(), rank.worker(), rank.state(),
                      job->stop.has_value() && job->stop->sent, status.reason()});
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
                                                      std::optional<int> rank, size_t max_bytes) const {
  MutexLock lock(mutex_);
  const Job* job = FindJob(id);
  if (job == nullptr) return NoSuchJob(id);
  LogUpdate update;
  update.read = job->log.ReadFrom(offset, rank, max_bytes);
  update.terminal = IsTerminal(job->record.status().state());
  update.more = update.read.next < job->log.end();
  return update;
}

}  // namespace metp
