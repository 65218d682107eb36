// The job table's small notes: what is written down without moving a job to another state; Flush writes it.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/support/status_macros.h"
#include "server/job_table.h"

namespace metp {

absl::Status JobTable::RankSpawned(const std::string& attempt, int rank, int pid) {
  {
    MutexLock write(write_mutex_);
    MutexLock lock(mutex_);
    METP_ASSIGN_OR_RETURN(Job * job, Live(attempt, rank));
    job->record.mutable_status()->mutable_ranks(rank)->set_pid(pid);
    Changed(*job);
  }
  changes_.Notify(JobOfAttempt(attempt));
  return absl::OkStatus();
}

absl::Status JobTable::Report(const std::string& attempt, const v1::StepReport& report) {
  {
    MutexLock write(write_mutex_);
    MutexLock lock(mutex_);
    METP_ASSIGN_OR_RETURN(Job * job, Live(attempt, report.rank()));
    v1::JobStatus& status = *job->record.mutable_status();
    const size_t points = job->progress.history().points().size();
    const int64_t published = job->progress.published();
    if (!job->progress.Add(report, *status.mutable_ranks(report.rank()), status)) return absl::OkStatus();
    BoundHistory(*job, points);
    if (job->progress.published() != published) job->last_step = clock_.Wall();
    for (const int slow : job->progress.TakeStragglers(config_.straggler_ratio, status)) {
      AddEvent(job->record, v1::JobEvent::STRAGGLER,
               absl::StrCat("rank ", slow, " on worker ", status.ranks(slow).worker(), " computes ",
                            absl::StrFormat("%.1f", status.ranks(slow).straggler_ratio()),
                            " times as long as the median rank"));
    }
    Changed(*job);
  }
  changes_.Notify(JobOfAttempt(attempt));
  return absl::OkStatus();
}

absl::Status JobTable::AppendOutput(const std::string& attempt, int rank,
                                    const std::vector<std::string>& lines, int64_t dropped) {
  {
    MutexLock write(write_mutex_);
    MutexLock lock(mutex_);
    METP_ASSIGN_OR_RETURN(Job * job, Live(attempt, rank));
    if (dropped > 0) {
      job->log.Append(rank, absl::StrCat("[", dropped, " lines dropped: the worker could not deliver them]"));
    }
    for (const std::string& line : lines) job->log.Append(rank, line);
    Changed(*job);
  }
  changes_.Notify(JobOfAttempt(attempt));
  return absl::OkStatus();
}

absl::Status JobTable::NoteRendezvous(const std::string& attempt, int rank, const std::string& key,
                                      const std::string& value) {
  MutexLock write(write_mutex_);
  MutexLock lock(mutex_);
  METP_ASSIGN_OR_RETURN(Job * job, Live(attempt, rank));
  if (job->record.status().state() != v1::JobStatus::STARTING) return absl::OkStatus();
  (*job->record.mutable_rendezvous())[key] = value;
  Changed(*job);
  return absl::OkStatus();
}

absl::Status JobTable::SetMeasured(const std::string& attempt, int rank, double sgemm_flops_per_second) {
  MutexLock write(write_mutex_);
  MutexLock lock(mutex_);
  METP_ASSIGN_OR_RETURN(Job * job, Live(attempt, rank));
  job->record.mutable_status()->mutable_ranks(rank)->set_sgemm_flops_per_second(sgemm_flops_per_second);
  Changed(*job);
  return absl::OkStatus();
}

void JobTable::SetWaiting(const std::vector<Decisions::Wait>& waiting) {
  std::vector<std::string> changed;
  {
    MutexLock write(write_mutex_);
    MutexLock lock(mutex_);
    for (const Decisions::Wait& wait : waiting) {
      Job* job = FindJob(wait.job);
      if (job == nullptr || job->record.status().state() != v1::JobStatus::QUEUED) continue;
      job->wait = wait.cause;
      if (job->record.status().reason() == wait.reason) continue;
      job->record.mutable_status()->set_reason(wait.reason);
      ++job->version;
      changed.push_back(wait.job);
    }
  }
  for (const std::string& id : changed) changes_.Notify(id);
}

absl::Status JobTable::NoteCheckpoint(const std::string& attempt, int rank, const v1::CheckpointNote& note) {
  {
    MutexLock write(write_mutex_);
    MutexLock lock(mutex_);
    METP_ASSIGN_OR_RETURN(Job * job, Live(attempt, rank));
    v1::JobStatus& status = *job->record.mutable_status();
    const auto event = [&](const std::string& text)
                           METP_REQUIRES(mutex_) { AddEvent(job->record, v1::JobEvent::CHECKPOINT, text); };
    switch (note.kind()) {
      case v1::CheckpointNote::SAVED:
        status.set_checkpoint_step(note.step());
        *status.mutable_checkpoint_time() = TimeStamp(clock_);
        status.clear_checkpoint_trouble();
        status.set_saved(true);
        break;
      case v1::CheckpointNote::RESUMED:
        // An older one than was known of: the newer ones are broken. What counts as progress begins here.
        if (note.step() > status.checkpoint_step())
          status.set_fruitless_restarts(0);  // we had not heard of it
        status.set_checkpoint_step(note.step());
        job->record.set_began_after(note.step());
        if (!status.saved() && job->progress.points().empty()) {
          job->record.set_first_after(note.step());
          status.set_step(std::min(note.step(), status.job().train().steps()));
        }
        event(absl::StrCat("attempt ", job->record.attempts(), " goes on after step ", note.step(), ", from ",
                           note.text()));
        break;
      case v1::CheckpointNote::HISTORY:
        if (job->record.attempts() == 1) return absl::OkStatus();  // steps of another job
        job->progress.Fill(note.history(), job->record.first_after(), status);
        break;
      case v1::CheckpointNote::FAILED:
        if (status.checkpoint_trouble().empty())  // the first since there was last a good one
          event(absl::StrCat(note.step() == 0 ? std::string("checkpoints")
                                              : absl::StrCat("checkpoint of step ", note.step()),
                             ": rank ", rank, ": ", note.text()));
        status.set_checkpoint_trouble(
            absl::StrCat(note.step() == 0 ? std::string() : absl::StrCat("step ", note.step(), ", "), "rank ",
                         rank, ": ", note.text()));
        break;
      case v1::CheckpointNote::PASSED_OVER:
        if (rank == 0) event(absl::StrCat("a broken checkpoint is passed over: ", note.text()));
        break;
      default:
        return absl::OkStatus();
    }
    Changed(*job);
  }
  changes_.Notify(JobOfAttempt(attempt));
  return absl::OkStatus();
}

void JobTable::NoteEvent(const std::string& id, v1::JobEvent::Kind kind, const std::string& text) {
  {
    MutexLock write(write_mutex_);
    MutexLock lock(mutex_);
    Job* job = FindJob(id);
    if (job == nullptr) return;
    AddEvent(job->record, kind, text);
    Changed(*job);
  }
  changes_.Notify(id);
}

}  // namespace metp
