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

int CountRanks(const v1::JobStatus& status, v1::RankStatus::State state) {
  return static_cast<int>(
      std::count_if(status.ranks().begin(), status.ranks().end(),
                    [state](const v1::RankStatus& rank) { return rank.state() == state; }));
}

std::string PlanSentence(const v1::Plan& plan) {
  return absl::StrCat(RanksOf(plan), RanksOf(plan) == 1 ? " rank, " : " ranks, ", PlanSettings(plan));
}

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
  AddEvent(record, v1::JobEvent::SUBMITTED, absl::StrCat("submitted; planned: ", PlanSentence(plan)));
  METP_RETURN_IF_ERROR(Commit(record));
  return status;
}

absl::StatusOr<std::string> JobTable::StartAttempt(const std::string& id,
                                                   const std::vector<Placement>& placement) {
  std::string attempt;
  {
    MutexLock write(write_mutex_);
    METP_ASSIGN_OR_RETURN(v1::JobRecord next, RecordOf(id));
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
    status.clear_not_before();
    next.set_began_after(status.checkpoint_step());
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
    AddEvent(next, v1::JobEvent::ATTEMPT,
             absl::StrCat("attempt ", next.attempts(), " starts on ", WorkerNames(placement)));
    {
      MutexLock lock(mutex_);
      FindJob(id)->progress.StartAttempt();
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
        Changed(*job);
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
      AddEvent(next, v1::JobEvent::RUNNING, absl::StrCat("all ", status.ranks_size(), " ranks have started"));
      METP_RETURN_IF_ERROR(Commit(next));
    }
  }
  changes_.Notify(JobOfAttempt(attempt));
  return absl::OkStatus();
}

absl::Status JobTable::Replan(const std::string& id, const v1::Plan& plan, const v1::Prediction& prediction,
                              const std::string& why) {
  {
    MutexLock write(write_mutex_);
    METP_ASSIGN_OR_RETURN(v1::JobRecord next, RecordOf(id));
    v1::JobStatus& status = *next.mutable_status();
    if (status.state() != v1::JobStatus::QUEUED)
      return absl::FailedPreconditionError(absl::StrCat("job ", id, " is not QUEUED any more"));
    if (!next.has_first_plan()) {
      *next.mutable_first_plan() = status.plan();
      *next.mutable_first_prediction() = status.prediction();
    } else if (google::protobuf::util::MessageDifferencer::Equals(next.first_plan(), plan)) {
      next.clear_first_plan();
      next.clear_first_prediction();
    }
    *status.mutable_plan() = plan;
    status.clear_prediction();
    if (!prediction.profile().empty()) *status.mutable_prediction() = prediction;
    AddEvent(next, v1::JobEvent::REPLANNED, absl::StrCat("planned again, ", why, ": ", PlanSentence(plan)));
    METP_RETURN_IF_ERROR(Commit(next));
  }
  changes_.Notify(id);
  return absl::OkStatus();
}

JobTable::Job* JobTable::FindJob(const std::string& id) {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : found->second;
}

const JobTable::Job* JobTable::FindJob(const std::string& id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : found->second;
}

absl::StatusOr<v1::JobRecord> JobTable::RecordOf(const std::string& id) const {
  MutexLock lock(mutex_);
  const Job* job = FindJob(id);
  if (job == nullptr) return absl::NotFoundError(absl::StrCat("no job '", id, "'"));
  return job->record;
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
