// How attempts end: what ranks' ends make of them, who is told to stop, and what follows.

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "google/protobuf/util/time_util.h"
#include "proto/support/status_macros.h"
#include "server/job_table.h"
#include "server/recovery.h"
#include "worker/model/schedule.h"

namespace metp {
namespace {

int CountGone(const v1::JobStatus& status) {
  return static_cast<int>(
      std::count_if(status.ranks().begin(), status.ranks().end(),
                    [](const v1::RankStatus& rank) { return rank.state() == v1::RankStatus::GONE; }));
}

/// A rank leaves only when all have done their last step and saved what is to be saved.
bool AnyDone(const v1::JobStatus& status) {
  return std::any_of(status.ranks().begin(), status.ranks().end(), [](const v1::RankStatus& rank) {
    return rank.state() == v1::RankStatus::GONE && rank.end() == kDoneEnd;
  });
}

/// The sentence for a job whose attempt's end is decided but not reached.
std::string StoppingReason(const v1::JobStatus& status, bool cancel, const std::string& cause) {
  const int left = status.ranks_size() - CountGone(status);
  return absl::StrCat(cancel ? "cancelling" : "ending the attempt", ": waiting for ", left, " of ",
                      status.ranks_size(), " rank processes to end", cause.empty() ? "" : "; ", cause);
}

std::string DoneReason(const v1::JobRecord& record) {
  const v1::TrainSpec& train = record.status().job().train();
  if (record.first_after() >= LastStep(train))
    return absl::StrCat("nothing was left to do: there was a checkpoint of step ", record.first_after(),
                        " in ", record.status().job().checkpoint().directory());
  if (LastStep(train) < train.steps())
    return absl::StrCat("stopped after step ", train.stop_after(), " of ", train.steps(),
                        ", as train.stop_after says");
  return absl::StrCat("all ", train.steps(), " steps done");
}

}  // namespace

void JobTable::Weigh(const RankEnd& end, v1::JobRecord& record, std::optional<Stop>& stop,
                     std::optional<RankEnd>& cause) const {
  v1::JobStatus& status = *record.mutable_status();
  if (!cause.has_value() || Outranks(end.kind, cause->kind)) cause = end;
  // One that complains, or leaves in good order, may be heard before what made it.
  const bool wait = end.kind == EndKind::kConsequence || end.kind == EndKind::kInterrupted;
  const Clock::Time at = clock_.Now() + (wait ? Clock::Duration(config_.cause_window) : Clock::Duration(0));
  if (!stop.has_value()) stop = Stop{.cancel = false, .at = at};
  if (!stop->sent) stop->at = std::min(stop->at, at);
  status.set_stopping(true);
  if (stop->cancel) return;
  record.set_cause(cause->message);
  record.set_cause_kind(static_cast<int>(cause->kind));
  record.set_cause_final(cause->final);
}

std::optional<Clock::Duration> JobTable::Conclude(v1::JobRecord& record, const std::optional<Stop>& stop,
                                                  const std::optional<RankEnd>& cause) const {
  v1::JobStatus& status = *record.mutable_status();
  status.set_stopping(false);
  record.clear_rendezvous();
  Verdict verdict;
  if (AnyDone(status)) {
    status.set_state(v1::JobStatus::SUCCEEDED);
    verdict.sentence = DoneReason(record);
  } else if (stop->cancel) {
    status.set_state(v1::JobStatus::CANCELLED);
    verdict.sentence = "cancelled on request";
  } else {
    verdict = AfterAttempt(record, *cause, config_);
    status.set_state(verdict.again ? v1::JobStatus::QUEUED : v1::JobStatus::FAILED);
  }
  status.set_reason(verdict.sentence);
  if (!verdict.again) {
    *status.mutable_finished() = TimeStamp(clock_);
    AddEvent(record, v1::JobEvent::ENDED,
             absl::StrCat(v1::JobStatus::State_Name(status.state()), ": ", verdict.sentence));
    return std::nullopt;
  }
  AddEvent(record, cause->kind == EndKind::kInterrupted ? v1::JobEvent::REQUEUED : v1::JobEvent::RESTART,
           verdict.sentence);
  status.set_restarts(status.restarts() + 1);
  status.set_fruitless_restarts(
      verdict.fruitless ? status.fruitless_restarts() + 1
                        : (cause->kind == EndKind::kInterrupted ? status.fruitless_restarts() : 0));
  using google::protobuf::util::TimeUtil;
  *status.mutable_not_before() =
      TimeStamp(clock_) + TimeUtil::MillisecondsToDuration(
                              std::chrono::duration_cast<std::chrono::milliseconds>(verdict.wait).count());
  record.clear_cause();
  record.clear_cause_kind();
  record.clear_cause_final();
  return verdict.wait;
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
    if (end.kind != EndKind::kDone && end.kind != EndKind::kStopped)
      AddEvent(next, v1::JobEvent::RANK_ENDED, end.message);
    if (end.kind != EndKind::kDone) Weigh(end, next, stop, cause);
    std::optional<Clock::Duration> wait;
    const bool over = CountGone(status) == status.ranks_size();
    if (over) {
      wait = Conclude(next, stop, cause);
      stop.reset();
      cause.reset();
    } else if (status.stopping()) {
      status.set_reason(StoppingReason(status, stop->cancel, stop->cancel ? "" : next.cause()));
    }
    {
      MutexLock lock(mutex_);
      if (status.state() == v1::JobStatus::SUCCEEDED) FindJob(status.id())->progress.PublishRest(status);
    }
    METP_RETURN_IF_ERROR(Commit(next));
    {
      MutexLock lock(mutex_);
      Job& job = *FindJob(status.id());
      job.stop = stop;
      job.cause = cause;
      if (wait.has_value() && wait->count() > 0) {
        job.not_before = clock_.Now() + *wait;
        delayed_.insert(job.record.sequence());
      }
    }
    if (IsTerminal(status.state())) DropOldFinished();
  }
  changes_.Notify(JobOfAttempt(attempt));
  return absl::OkStatus();
}

absl::Status JobTable::EndAttempt(const std::string& attempt, const RankEnd& cause, bool dump) {
  {
    MutexLock write(write_mutex_);
    METP_ASSIGN_OR_RETURN(v1::JobRecord next, RecordOf(JobOfAttempt(attempt)));
    v1::JobStatus& status = *next.mutable_status();
    if (status.attempt() != attempt || status.stopping() || CountGone(status) == status.ranks_size())
      return absl::OkStatus();
    std::optional<Stop> stop;
    std::optional<RankEnd> known;
    Weigh(cause, next, stop, known);
    stop->dump = dump;
    status.set_reason(StoppingReason(status, false, cause.message));
    AddEvent(next, dump ? v1::JobEvent::HANG : v1::JobEvent::RANK_ENDED, cause.message);
    METP_RETURN_IF_ERROR(Commit(next));
    MutexLock lock(mutex_);
    Job& job = *FindJob(status.id());
    job.stop = stop;
    job.cause = known;
  }
  changes_.Notify(JobOfAttempt(attempt));
  return absl::OkStatus();
}

absl::StatusOr<v1::JobStatus> JobTable::Cancel(const std::string& id) {
  v1::JobStatus result;
  {
    MutexLock write(write_mutex_);
    METP_ASSIGN_OR_RETURN(v1::JobRecord next, RecordOf(id));
    v1::JobStatus& status = *next.mutable_status();
    if (next.cancel_requested() && (status.state() == v1::JobStatus::CANCELLED || status.stopping()))
      return status;
    if (IsTerminal(status.state())) {
      return absl::FailedPreconditionError(
          absl::StrCat("job ", id, " has ended already: ", v1::JobStatus::State_Name(status.state()), ", ",
                       status.reason()));
    }
    next.set_cancel_requested(true);
    if (status.state() == v1::JobStatus::QUEUED) {
      status.set_state(v1::JobStatus::CANCELLED);
      status.set_reason(next.attempts() == 0 ? "cancelled on request, before it started"
                                             : "cancelled on request, between two attempts");
      *status.mutable_finished() = TimeStamp(clock_);
      AddEvent(next, v1::JobEvent::ENDED, absl::StrCat("CANCELLED: ", status.reason()));
    } else {
      AddEvent(next, v1::JobEvent::CANCEL, "asked to be cancelled");
      status.set_stopping(true);
      status.set_reason(StoppingReason(status, true, ""));
    }
    METP_RETURN_IF_ERROR(Commit(next));
    if (status.stopping()) {
      MutexLock lock(mutex_);
      std::optional<Stop>& stop = FindJob(id)->stop;
      if (!stop.has_value()) stop = Stop{.at = clock_.Now()};
      stop->cancel = true;
      if (!stop->sent) stop->at = clock_.Now();
    } else {
      DropOldFinished();
    }
    result = status;
  }
  changes_.Notify(id);
  return result;
}

std::vector<LiveRank> JobTable::TakeStops() {
  MutexLock write(write_mutex_);
  MutexLock lock(mutex_);
  const Clock::Time now = clock_.Now();
  std::vector<LiveRank> stops;
  for (const int64_t sequence : active_) {
    Job& job = *jobs_.at(sequence);
    const v1::JobStatus& status = job.record.status();
    if (!job.stop.has_value() || job.stop->sent || job.stop->at > now) continue;
    job.stop->sent = true;
    for (const v1::RankStatus& rank : status.ranks()) {
      if (rank.state() == v1::RankStatus::GONE) continue;
      stops.push_back({status.id(), status.attempt(), rank.rank(), rank.worker(), rank.state(), rank.step(),
                       true, status.reason(), job.stop->dump});
    }
  }
  std::erase_if(delayed_, [&](int64_t sequence) METP_ATTRIBUTE(no_thread_safety_analysis) {
    std::optional<Clock::Time>& at = jobs_.at(sequence)->not_before;
    if (at.has_value() && *at > now) return false;
    at.reset();
    ++schedule_version_;
    return true;
  });
  return stops;
}

std::optional<Clock::Time> JobTable::NextDeadline() const {
  MutexLock lock(mutex_);
  std::optional<Clock::Time> next;
  const auto take = [&next](const Clock::Time& at) {
    if (!next.has_value() || at < *next) next = at;
  };
  for (const int64_t sequence : active_) {
    const Job& job = *jobs_.at(sequence);
    if (job.stop.has_value() && !job.stop->sent) take(job.stop->at);
  }
  for (const int64_t sequence : delayed_) {
    if (const auto& at = jobs_.at(sequence)->not_before; at.has_value()) take(*at);
  }
  return next;
}

void JobTable::DropOldFinished() {
  std::vector<std::string> drop;
  {
    MutexLock lock(mutex_);
    while (static_cast<int>(finished_.size()) > config_.finished_jobs_kept) {
      const auto oldest = jobs_.find(finished_.begin()->second);
      const v1::JobRecord& record = oldest->second->record;
      drop.push_back(record.status().id());
      by_id_.erase(record.status().id());
      by_request_.erase(record.request_id());
      changed_.erase(record.sequence());
      DropHistory(*oldest->second);
      finished_.erase(finished_.begin());
      jobs_.erase(oldest);
    }
    if (const size_t kept = static_cast<size_t>(config_.finished_histories_kept); finished_.size() > kept) {
      // One job ends at a time: only the first beyond those that are kept may have a history.
      DropHistory(*jobs_.at(std::prev(finished_.end(), static_cast<std::ptrdiff_t>(kept) + 1)->second));
    }
  }
  // A record that stays in the store comes back at the next start and is dropped then.
  if (!drop.empty()) store_.Write({.deleted = drop}).IgnoreError();
}

}  // namespace metp
