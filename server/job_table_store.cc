// The job table and its store: what is loaded, what is written, and when.

#include <utility>

#include "google/protobuf/util/time_util.h"
#include "proto/support/status_macros.h"
#include "server/job_table.h"

namespace metp {

namespace {
constexpr int kEventsKept = 300;  // of a job
}

google::protobuf::Timestamp TimeStamp(const Clock& clock) {
  const auto since = clock.Wall().time_since_epoch();
  return google::protobuf::util::TimeUtil::MillisecondsToTimestamp(
      std::chrono::duration_cast<std::chrono::milliseconds>(since).count());
}

void JobTable::AddEvent(v1::JobRecord& record, const std::string& text) const {
  auto& events = *record.mutable_events();
  if (events.size() >= kEventsKept) events.DeleteSubrange(0, events.size() - kEventsKept + 1);
  v1::JobEvent& event = *events.Add();
  *event.mutable_time() = TimeStamp(clock_);
  event.set_attempt(record.status().attempt());
  event.set_text(text);
}

void JobTable::Load(const StoredState& state) {
  MutexLock write(write_mutex_);
  MutexLock lock(mutex_);
  last_sequence_ = state.last_sequence;
  for (const StoredJob& stored : state.jobs) {
    auto job = std::make_unique<Job>(config_.log_lines, config_.log_bytes);
    job->record = stored.record;
    job->progress.Load(stored.steps, *job->record.mutable_status());
    const v1::JobRecord& record = job->record;
    if (record.status().stopping() && !IsTerminal(record.status().state())) {
      job->stop = Stop{.cancel = record.cancel_requested(), .at = clock_.Now()};
      if (!record.cancel_requested()) job->cause = RankEnd{EndKind::kError, record.cause()};
      for (const v1::RankStatus& rank : record.status().ranks()) {  // stopped before: the job was not done
        const bool stopped = rank.state() == v1::RankStatus::GONE && rank.end() != kDoneEnd;
        if (record.cancel_requested() && stopped) job->cause = RankEnd{EndKind::kStopped, rank.end()};
      }
    }
    by_id_[record.status().id()] = job.get();
    by_request_[record.request_id()] = job.get();
    jobs_[record.sequence()] = std::move(job);
  }
}

absl::Status JobTable::Commit(const v1::JobRecord& next) {
  StoreChange change;
  change.jobs.push_back(next);
  {
    MutexLock lock(mutex_);
    if (const Job* job = FindJob(next.status().id()); job != nullptr)
      job->progress.AddChanges(next.status().id(), change);
  }
  METP_RETURN_IF_ERROR(store_.Write(change));
  MutexLock lock(mutex_);
  std::unique_ptr<Job>& job = jobs_[next.sequence()];
  if (job == nullptr) job = std::make_unique<Job>(config_.log_lines, config_.log_bytes);
  job->record = next;
  job->changed = false;
  job->progress.ClearChanges();
  ++job->version;
  last_sequence_ = std::max(last_sequence_, next.sequence());
  by_id_[next.status().id()] = job.get();
  by_request_[next.request_id()] = job.get();
  return absl::OkStatus();
}

absl::Status JobTable::Flush() {
  MutexLock write(write_mutex_);
  StoreChange change;
  {
    MutexLock lock(mutex_);
    for (const auto& [sequence, job] : jobs_) {
      if (!job->changed) continue;
      change.jobs.push_back(job->record);
      job->progress.AddChanges(job->record.status().id(), change);
    }
  }
  if (change.empty()) return absl::OkStatus();
  METP_RETURN_IF_ERROR(store_.Write(change));
  MutexLock lock(mutex_);
  for (const v1::JobRecord& record : change.jobs) {
    Job& job = *jobs_.at(record.sequence());
    job.changed = false;
    job.progress.ClearChanges();
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<v1::JobEvent>> JobTable::Events(const std::string& id) const {
  MutexLock lock(mutex_);
  const Job* job = FindJob(id);
  if (job == nullptr) return absl::NotFoundError("no job '" + id + "'");
  return std::vector<v1::JobEvent>(job->record.events().begin(), job->record.events().end());
}

}  // namespace metp
