// The job table's small notes: what is written down without moving a job to another state; Flush writes it.

#include "absl/strings/str_cat.h"
#include "proto/support/status_macros.h"
#include "server/job_table.h"

namespace metp {

absl::Status JobTable::RankSpawned(const std::string& attempt, int rank, int pid) {
  {
    MutexLock write(write_mutex_);
    MutexLock lock(mutex_);
    METP_ASSIGN_OR_RETURN(Job * job, Live(attempt, rank));
    job->record.mutable_status()->mutable_ranks(rank)->set_pid(pid);
    job->changed = true;
    ++job->version;
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
    if (!job->progress.Add(report, *status.mutable_ranks(report.rank()), status)) return absl::OkStatus();
    job->changed = true;
    ++job->version;
  }
  changes_.Notify(JobOfAttempt(attempt));
  return absl::OkStatus();
}

absl::Status JobTable::AppendOutput(const std::string& attempt, int rank,
                                    const std::vector<std::string>& lines, int64_t dropped) {
  {
    MutexLock lock(mutex_);
    METP_ASSIGN_OR_RETURN(Job * job, Live(attempt, rank));
    if (dropped > 0) {
      job->log.Append(rank, absl::StrCat("[", dropped, " lines dropped: the worker could not deliver them]"));
    }
    for (const std::string& line : lines) job->log.Append(rank, line);
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
  job->changed = true;
  return absl::OkStatus();
}

absl::Status JobTable::SetMeasured(const std::string& attempt, int rank, double sgemm_flops_per_second) {
  MutexLock write(write_mutex_);
  MutexLock lock(mutex_);
  METP_ASSIGN_OR_RETURN(Job * job, Live(attempt, rank));
  job->record.mutable_status()->mutable_ranks(rank)->set_sgemm_flops_per_second(sgemm_flops_per_second);
  job->changed = true;
  return absl::OkStatus();
}

void JobTable::SetWaiting(const std::string& id, const std::string& reason) {
  {
    MutexLock write(write_mutex_);
    MutexLock lock(mutex_);
    Job* job = FindJob(id);
    if (job == nullptr || job->record.status().state() != v1::JobStatus::QUEUED) return;
    if (job->record.status().reason() == reason) return;
    job->record.mutable_status()->set_reason(reason);
    ++job->version;
  }
  changes_.Notify(id);
}

std::vector<LiveRank> JobTable::TakeStops() {
  MutexLock write(write_mutex_);
  MutexLock lock(mutex_);
  const Clock::Time now = clock_.Now();
  std::vector<LiveRank> stops;
  for (auto& [sequence, job] : jobs_) {
    const v1::JobStatus& status = job->record.status();
    if (!job->stop.has_value() || job->stop->sent || job->stop->at > now || IsTerminal(status.state()))
      continue;
    job->stop->sent = true;
    for (const v1::RankStatus& rank : status.ranks()) {
      if (rank.state() == v1::RankStatus::GONE) continue;
      stops.push_back(
          {status.id(), status.attempt(), rank.rank(), rank.worker(), rank.state(), true, status.reason()});
    }
  }
  return stops;
}

}  // namespace metp
