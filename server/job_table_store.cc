// The job table and its store: what is loaded, what is written, and when.

#include <algorithm>
#include <utility>

#include "google/protobuf/util/time_util.h"
#include "proto/support/job_file.h"
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

void JobTable::AddEvent(v1::JobRecord& record, v1::JobEvent::Kind kind, const std::string& text) const {
  auto& events = *record.mutable_events();
  if (events.size() >= kEventsKept) {  // what is said often goes before what happened once
    const auto minor = std::find_if(events.begin(), events.end(), [](const v1::JobEvent& event) {
      return event.kind() == v1::JobEvent::CHECKPOINT || event.kind() == v1::JobEvent::STRAGGLER;
    });
    events.erase(minor == events.end() ? events.begin() + 1 : minor);  // the submission stays
  }
  v1::JobEvent& event = *events.Add();
  *event.mutable_time() = TimeStamp(clock_);
  event.set_attempt(record.status().attempt());
  event.set_kind(kind);
  event.set_text(text);
}

void JobTable::Load(const StoredState& state) {
  MutexLock write(write_mutex_);
  MutexLock lock(mutex_);
  last_sequence_ = state.last_sequence;
  for (const StoredJob& stored : state.jobs) {
    auto job = std::make_unique<Job>(config_.log_lines, config_.log_bytes);
    job->record = stored.record;
    v1::JobRecord& record = job->record;
    NormalizeJob(*record.mutable_status()->mutable_job());  // what earlier versions did not know yet
    job->progress.Load(stored.steps, *record.mutable_status());
    job->log.Load(stored.output);
    if (record.status().stopping()) LoadStop(*job);
    if (record.status().has_not_before()) {
      const int64_t ms = google::protobuf::util::TimeUtil::DurationToMilliseconds(
          record.status().not_before() - TimeStamp(clock_));
      job->not_before =
          clock_.Now() + std::min<Clock::Duration>(std::chrono::milliseconds(std::max<int64_t>(ms, 0)),
                                                   config_.restart_backoff_limit);
      delayed_.insert(record.sequence());
    }
    by_id_[record.status().id()] = job.get();
    by_request_[record.request_id()] = job.get();
    Index(*job);
    jobs_[record.sequence()] = std::move(job);
  }
}

void JobTable::LoadStop(Job& job) const {
  const v1::JobRecord& record = job.record;
  job.stop = Stop{.cancel = record.cancel_requested(), .at = clock_.Now()};
  if (!record.cause().empty())
    job.cause = RankEnd{static_cast<EndKind>(record.cause_kind()), record.cause(), record.cause_final()};
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
  job->progress.ClearChanges();
  ++job->version;
  if (job->log.stored()) changed_.erase(next.sequence());
  last_sequence_ = std::max(last_sequence_, next.sequence());
  by_id_[next.status().id()] = job.get();
  by_request_[next.request_id()] = job.get();
  Index(*job);
  return absl::OkStatus();
}

void JobTable::Changed(Job& job) {
  ++job.version;
  changed_.insert(job.record.sequence());
}

void JobTable::Index(Job& job) {
  const int64_t sequence = job.record.sequence();
  const v1::JobStatus::State state = job.record.status().state();
  const auto put = [&](std::set<int64_t>& set, bool in) {
    if (in) set.insert(sequence);
    if (!in) set.erase(sequence);
  };
  put(queued_, state == v1::JobStatus::QUEUED);
  if (IsTerminal(state)) {
    const auto end =
        google::protobuf::util::TimeUtil::TimestampToMilliseconds(job.record.status().finished());
    finished_.emplace(end, sequence);
  }
  put(shrunk_, state == v1::JobStatus::QUEUED && job.record.has_first_plan());
  put(active_, state == v1::JobStatus::STARTING || state == v1::JobStatus::RUNNING);
  if (active_.count(sequence) > 0 && !job.last_step.has_value()) job.last_step = clock_.Wall();
  if (state != v1::JobStatus::QUEUED) job.wait = WaitCause::kBusy;  // until the next round says otherwise
  if (state != v1::JobStatus::QUEUED) delayed_.erase(sequence);
  ++schedule_version_;
}

absl::Status JobTable::Flush(StoreChange change) {
  MutexLock write(write_mutex_);
  std::set<int64_t> written;
  {
    MutexLock lock(mutex_);
    written = changed_;
    for (const int64_t sequence : written) {
      const Job& job = *jobs_.at(sequence);
      change.jobs.push_back(job.record);
      job.progress.AddChanges(job.record.status().id(), change);
      job.log.AddChanges(job.record.status().id(), change);
    }
  }
  if (change.empty()) return absl::OkStatus();
  METP_RETURN_IF_ERROR(store_.Write(change));
  {
    MutexLock lock(mutex_);
    for (const int64_t sequence : written) {
      Job& job = *jobs_.at(sequence);
      job.progress.ClearChanges();
      job.log.ClearChanges();
      changed_.erase(sequence);
    }
  }
  for (const StoreChange::Output& output : change.output) changes_.Notify(output.job);  // now it may be read
  return absl::OkStatus();
}

absl::StatusOr<std::vector<v1::JobEvent>> JobTable::Events(const std::string& id) const {
  MutexLock lock(mutex_);
  const Job* job = FindJob(id);
  if (job == nullptr) return absl::NotFoundError("no job '" + id + "'");
  return std::vector<v1::JobEvent>(job->record.events().begin(), job->record.events().end());
}

}  // namespace metp
