#include "server/scheduler/scheduler.h"

#include <map>
#include <set>

#include "absl/strings/str_cat.h"

namespace metp {

ClusterPicture Scheduler::Look() const {
  ClusterPicture picture;
  picture.waiting = jobs_.Queued();
  if (picture.waiting.empty()) return picture;
  picture.running = jobs_.Running();
  picture.quotas = config_.quotas;
  std::set<std::string> busy;
  for (const LiveRank& rank : jobs_.LiveRanks()) busy.insert(rank.worker);
  for (const v1::JobSpec::Device kind : {v1::JobSpec::DEVICE_CPU, v1::JobSpec::DEVICE_GPU}) {
    PoolPicture& pool = picture.of(PoolOf(kind));
    pool.drained = workers_.drained(kind);
    for (const std::string& name : workers_.Schedulable(kind)) {
      if (busy.count(name) == 0) pool.free.push_back({name, workers_.NodeOf(name)});
    }
    pool.alive = workers_.registered(kind);
  }
  return picture;
}

absl::Status Scheduler::Start(const Decisions::Start& start) {
  std::map<std::string, std::string> metrics;
  for (const v1::WorkerStatus& worker : workers_.List()) metrics[worker.name()] = worker.metrics_url();
  std::vector<Placement> placement;
  for (const std::string& worker : start.workers) placement.push_back({worker, metrics[worker]});
  const absl::StatusOr<std::string> attempt = jobs_.StartAttempt(start.job, placement);
  if (!attempt.ok()) return attempt.status();
  const absl::StatusOr<v1::JobStatus> status = jobs_.Get(start.job);
  if (!status.ok()) return status.status();
  for (const v1::RankStatus& rank : status->ranks()) {
    workers_.Send(rank.worker(), StartCommand(*status, rank.rank()));
  }
  return absl::OkStatus();
}

Decisions Scheduler::Tick() {
  Decisions decisions = Decide(Look());
  std::erase_if(decisions.start, [&](const Decisions::Start& start) {
    const absl::Status started = Start(start);
    if (!started.ok())
      decisions.wait.push_back(
          {start.job, absl::StrCat("could not be started: ", std::string(started.message()))});
    return !started.ok();
  });
  return decisions;
}

v1::ToWorker StartCommand(const v1::JobStatus& status, int rank) {
  v1::ToWorker message;
  v1::StartRank& start = *message.mutable_start();
  start.set_job_id(status.id());
  *start.mutable_start()->mutable_job() = status.job();
  *start.mutable_start()->mutable_plan() = status.plan();
  // What it has saved itself comes before what its first attempt was told to begin from.
  if (status.saved()) {
    start.mutable_start()->mutable_job()->mutable_checkpoint()->set_resume("auto");
    start.mutable_start()->set_saved_step(status.checkpoint_step());
  }
  start.mutable_start()->set_rank(rank);
  start.mutable_start()->set_attempt(status.attempt());
  return message;
}

}  // namespace metp
