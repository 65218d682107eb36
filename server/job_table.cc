#include "server/job_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "google/protobuf/util/message_differencer.h"
#include "proto/support/status_macros.h"
#include "worker/model/plan.h"

namespace metp {
namespace {

int Strength(EndKind kind) {
  switch (kind) {
    case EndKind::kDone:
      return 0;
    case EndKind::kStopped:
      return 1;
    case EndKind::kConsequence:
      return 2;
    case EndKind::kError:
    case EndKind::kDeath:
      return 3;
  }
  return 0;
}

int CountRanks(const v1::JobStatus& status, v1::RankStatus::State state) {
  return static_cast<int>(
      std::count_if(status.ranks().begin(), status.ranks().end(),
                    [state](const v1::RankStatus& rank) { return rank.state() == state; }));
}
int CountGone(const v1::JobStatus& status) { return CountRanks(status, v1::RankStatus::GONE); }

std::string WorkerNames(const std::vector<Placement>& placement) {
  std::vector<std::string> names;
  for (const Placement& place : placement) names.push_back(place.worker);
  if (names.size() > 8) {
    names.resize(8);
    names.push_back("...");
  }
  return absl::StrJoin(names, ", ");
}

std::string StateName(v1::JobStatus::State state) { return v1::JobStatus::State_Name(state); }

/// The sentence for a job whose end is decided but not reached.
std::string StoppingReason(const v1::JobStatus& status, bool cancel, const std::string& cause) {
  const int left = status.ranks_size() - CountGone(status);
  return absl::StrCat(cancel ? "cancelling" : "failing", ": waiting for ", left, " of ", status.ranks_size(),
                      " rank processes to end", cause.empty() ? "" : "; ", cause);
}

}  // namespace

bool IsTerminal(v1::JobStatus::State state) {
  return state == v1::JobStatus::SUCCEEDED || state == v1::JobStatus::FAILED ||
         state == v1::JobStatus::CANCELLED;
}

std::string JobOfAttempt(const std::string& attempt) { return attempt.substr(0, attempt.rfind('/')); }

absl::StatusOr<v1::JobStatus> JobTable::Repeated(const std::string& request_id,
                                                 const v1::JobSpec& job) const {
  MutexLock lock(mutex_);
  const auto found = by_request_.find(request_id);
  if (found == by_request_.end()) return absl::NotFoundError("no job was made by this request");
  const v1::JobStatus& status = found->second->record.status();
  if (!google::protobuf::util::MessageDifferencer::Equals(status.job(), job)) {
    return absl::AlreadyExistsError(absl::StrCat("request id '", request_id, "' was used for job ",
                                                 status.id(),
                                                 ", which is another job; make a new id for a new job"));
  }
  return status;
}

absl::StatusOr<v1::JobStatus> JobTable::Add(const std::string& request_id, const v1::JobSpec& job,
                                            const v1::Plan& plan, const v1::Prediction& prediction) {
  if (request_id.empty()) return absl::InvalidArgumentError("a submit request must carry a request id");
  MutexLock write(write_mutex_);
  v1::JobRecord record;
  {
    MutexLock lock(mutex_);
    if (by_request_.count(request_id) > 0) {
      return absl::AlreadyExistsError(absl::StrCat("request id '", request_id, "' was used before"));
    }
    record.set_sequence(last_sequence_ + 1);
  }
  record.set_request_id(request_id);
  v1::JobStatus& status = *record.mutable_status();
  status.set_id(absl::StrCat(job.name(), "-", record.sequence()));
  *status.mutable_job() = job;
  *status.mutable_plan() = plan;
  if (!prediction.profile().empty()) *status.mutable_prediction() = prediction;
  status.set_state(v1::JobStatus::QUEUED);
  status.set_reason("waiting for its turn");
  *status.mutable_submitted() = TimeStamp(clock_);
  AddEvent(record, absl::StrCat("submitted; planned: ", RanksOf(plan),
                                RanksOf(plan) == 1 ? " rank, " : " ranks, ", PlanSettings(plan)));
  METP_RETURN_IF_ERROR(Commit(record));
  return status;
}

absl::StatusOr<std::string> JobTable::StartAttempt(const std::string& id,
                                                   const std::vector<Placement>& placement) {
  std::string attempt;
  {
    MutexLock write(write_mutex_);
    v1::JobRecord next;
    {
      MutexLock lock(mutex_);
      Job* job = FindJob(id);
      if (job == nullptr) return absl::NotFoundError(absl::StrCat("no job '", id, "'"));
      next = job->record;
    }
    v1::JobStatus& status = *next.mutable_status();
    if (status.state() != v1::JobStatus::QUEUED) {
      return absl::FailedPreconditionError(
          absl::StrCat("job ", id, " is ", StateName(status.state()), ", only a QUEUED job can be started"));
    }
    if (static_cast<int>(placement.size()) != RanksOf(status.plan())) {
      return absl::InvalidArgumentError(absl::StrCat("job ", id, " has ", RanksOf(status.plan()), " ranks, ",
                                                     placement.size(), " workers were given"));
    }
    next.set_attempts(next.attempts() + 1);
    attempt = absl::StrCat(id, "/", next.attempts());
    status.set_attempt(attempt);
    status.set_state(v1::JobStatus::STARTING);
    status.set_reason(absl::StrCat("starting ", placement.size(), " ranks"));
    status.clear_ranks();
    for (size_t r = 0; r < placement.size(); ++r) {
      v1::RankStatus& rank = *status.add_ranks();
      rank.set_rank(static_cast<int>(r));
      rank.set_worker(placement[r].worker);
      rank.set_metrics_url(placement[r].metrics_url);
      rank.set_state(v1::RankStatus::ASSIGNED);
    }
    next.clear_rendezvous();
    AddEvent(next, absl::StrCat("attempt ", next.attempts(), " starts on ", WorkerNames(placement)));
    {
      MutexLock lock(mutex_);
      Job* job = FindJob(id);
      job->stop.reset();
      job->cause.reset();
      job->progress.StartAttempt();
    }
    METP_RETURN_IF_ERROR(Commit(next));
  }
  changes_.Notify(id);
  return attempt;
}

absl::Status JobTable::RankStarted(const std::string& attempt, int rank, const std::string& description) {
  {
    MutexLock write(write_mutex_);
    v1::JobRecord next;
    {
      MutexLock lock(mutex_);
      METP_ASSIGN_OR_RETURN(Job * job, Live(attempt, rank));
      v1::JobStatus& status = *job->record.mutable_status();
      v1::RankStatus& starting = *status.mutable_ranks(rank);
      if (starting.state() != v1::RankStatus::STARTED) {
        starting.set_state(v1::RankStatus::STARTED);
        starting.set_description(description);
        job->changed = true;
        ++job->version;
      }
      if (status.state() == v1::JobStatus::STARTING && !status.stopping()) {
        const int started = CountRanks(status, v1::RankStatus::STARTED);
        status.set_reason(absl::StrCat(started, " of ", status.ranks_size(), " ranks have started"));
        if (started == status.ranks_size()) next = job->record;
      }
    }
    if (next.has_status()) {
      v1::JobStatus& status = *next.mutable_status();
      status.set_state(v1::JobStatus::RUNNING);
      status.set_reason("");
      *status.mutable_started() = TimeStamp(clock_);
      next.clear_rendezvous();
      AddEvent(next, absl::StrCat("all ", status.ranks_size(), " ranks have started"));
      METP_RETURN_IF_ERROR(Commit(next));
    }
  }
  changes_.Notify(JobOfAttempt(attempt));
  return absl::OkStatus();
}

absl::Status JobTable::RankGone(const std::string& attempt, int rank, const RankEnd& end) {
  {
    MutexLock write(write_mutex_);
    v1::JobRecord next;
    std::optional<Stop> stop;
    std::optional<RankEnd> cause;
    {
      MutexLock lock(mutex_);
      METP_ASSIGN_OR_RETURN(Job * job, Live(attempt, rank));
      next = job->record;
      stop = job->stop;
      cause = job->cause;
    }
    v1::JobStatus& status = *next.mutable_status();
    status.mutable_ranks(rank)->set_state(v1::RankStatus::GONE);
    status.mutable_ranks(rank)->set_end(end.message);
    if (end.kind != EndKind::kDone && end.kind != EndKind::kStopped) AddEvent(next, end.message);
    if (end.kind != EndKind::kDone) {
      if (!cause.has_value() || Strength(end.kind) > Strength(cause->kind)) cause = end;
      const bool wait = Strength(end.kind) == Strength(EndKind::kConsequence);
      const Clock::Time at =
          clock_.Now() + (wait ? Clock::Duration(config_.cause_window) : Clock::Duration(0));
      if (!stop.has_value()) stop = Stop{.cancel = false, .at = at};
      if (!stop->sent) stop->at = std::min(stop->at, at);
      status.set_stopping(true);
    }
    if (cause.has_value() && !(stop.has_value() && stop->cancel)) next.set_cause(cause->message);
    if (CountGone(status) == status.ranks_size()) {
      status.set_stopping(false);
      next.clear_rendezvous();
      *status.mutable_finished() = TimeStamp(clock_);
      if (!cause.has_value()) {
        status.set_state(v1::JobStatus::SUCCEEDED);
        const v1::TrainSpec& train = status.job().train();
        const bool early = train.has_stop_after() && train.stop_after() < train.steps();
        status.set_reason(early ? absl::StrCat("stopped after step ", train.stop_after(), " of ",
                                               train.steps(), ", as train.stop_after says")
                                : absl::StrCat("all ", train.steps(), " steps done"));
      } else if (stop->cancel) {
        status.set_state(v1::JobStatus::CANCELLED);
        status.set_reason("cancelled on request");
      } else {
        status.set_state(v1::JobStatus::FAILED);
        status.set_reason(cause->message);
      }
      AddEvent(next, absl::StrCat(StateName(status.state()), ": ", status.reason()));
    } else if (status.stopping()) {
      status.set_reason(StoppingReason(status, stop->cancel, stop->cancel ? "" : cause->message));
    }
    METP_RETURN_IF_ERROR(Commit(next));
    {
      MutexLock lock(mutex_);
      Job* job = FindJob(status.id());
      job->stop = stop;
      job->cause = cause;
    }
    if (IsTerminal(status.state())) DropOldFinished();
  }
  changes_.Notify(JobOfAttempt(attempt));
  return absl::OkStatus();
}

absl::StatusOr<v1::JobStatus> JobTable::Cancel(const std::string& id) {
  v1::JobStatus result;
  {
    MutexLock write(write_mutex_);
    v1::JobRecord next;
    {
      MutexLock lock(mutex_);
      const Job* job = FindJob(id);
      if (job == nullptr) return absl::NotFoundError(absl::StrCat("no job '", id, "'"));
      next = job->record;
    }
    v1::JobStatus& status = *next.mutable_status();
    if (next.cancel_requested() && (status.state() == v1::JobStatus::CANCELLED || status.stopping()))
      return status;
    if (IsTerminal(status.state())) {
      return absl::FailedPreconditionError(
          absl::StrCat("job ", id, " has ended already: ", StateName(status.state()), ", ", status.reason()));
    }
    if (status.stopping()) {
      return absl::FailedPreconditionError(absl::StrCat("job ", id, " is ", status.reason()));
    }
    next.set_cancel_requested(true);
    if (status.state() == v1::JobStatus::QUEUED) {
      status.set_state(v1::JobStatus::CANCELLED);
      status.set_reason("cancelled on request, before it started");
      *status.mutable_finished() = TimeStamp(clock_);
      AddEvent(next, absl::StrCat("CANCELLED: ", status.reason()));
    } else {
      AddEvent(next, "asked to be cancelled");
      status.set_stopping(true);
      status.set_reason(StoppingReason(status, true, ""));
    }
    METP_RETURN_IF_ERROR(Commit(next));
    if (status.stopping()) {
      MutexLock lock(mutex_);
      FindJob(id)->stop = Stop{.cancel = true, .at = clock_.Now()};
    } else {
      DropOldFinished();
    }
    result = status;
  }
  changes_.Notify(id);
  return result;
}

void JobTable::DropOldFinished() {
  std::vector<std::string> drop;
  {
    MutexLock lock(mutex_);
    int finished = 0;
    for (const auto& [sequence, job] : jobs_) finished += IsTerminal(job->record.status().state()) ? 1 : 0;
    for (auto at = jobs_.begin(); at != jobs_.end() && finished > config_.finished_jobs_kept;) {
      const v1::JobRecord& record = at->second->record;
      if (!IsTerminal(record.status().state())) {
        ++at;
        continue;
      }
      drop.push_back(record.status().id());
      by_id_.erase(record.status().id());
      by_request_.erase(record.request_id());
      at = jobs_.erase(at);
      --finished;
    }
  }
  // A record that stays in the store comes back at the next start and is dropped then.
  if (!drop.empty()) store_.Write({.deleted = drop}).IgnoreError();
}

JobTable::Job* JobTable::FindJob(const std::string& id) {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : found->second;
}

const JobTable::Job* JobTable::FindJob(const std::string& id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : found->second;
}

absl::StatusOr<JobTable::Job*> JobTable::Live(const std::string& attempt, int rank) {
  METP_RETURN_IF_ERROR(CheckLiveLocked(attempt, rank));
  return FindJob(JobOfAttempt(attempt));
}

absl::Status JobTable::CheckLiveLocked(const std::string& attempt, int rank) const {
  const Job* job = FindJob(JobOfAttempt(attempt));
  if (job == nullptr)
    return absl::FailedPreconditionError(absl::StrCat("attempt '", attempt, "' is of no known job"));
  const v1::JobStatus& status = job->record.status();
  if (status.attempt() != attempt) {
    return absl::FailedPreconditionError(absl::StrCat("attempt '", attempt, "' is stale, job ", status.id(),
                                                      " is at '", status.attempt(), "'"));
  }
  if (rank < 0 || rank >= status.ranks_size()) {
    return absl::FailedPreconditionError(
        absl::StrCat("attempt '", attempt, "' has ", status.ranks_size(), " ranks, found rank ", rank));
  }
  if (status.ranks(rank).state() == v1::RankStatus::GONE) {
    return absl::FailedPreconditionError(absl::StrCat("rank ", rank, " of attempt '", attempt, "' is gone"));
  }
  return absl::OkStatus();
}

absl::Status JobTable::CheckLive(const std::string& attempt, int rank) const {
  MutexLock lock(mutex_);
  return CheckLiveLocked(attempt, rank);
}

}  // namespace metp
