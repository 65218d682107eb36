#include "server/scheduler/scheduler.h"

#include <map>
#include <set>

#include "absl/strings/str_cat.h"

namespace metp {

ClusterPicture Scheduler::Look() const {
  ClusterPicture picture;
  picture.waiting = jobs_.Queued();
  if (picture.waiting.empty()) return picture;
  std::set<std::string> busy;
  for (const LiveRank& rank : jobs_.LiveRanks()) busy.insert(rank.worker);
  for (const std::string& name : workers_.Schedulable()) {
    if (busy.count(name) == 0) picture.free.push_back({name, workers_.NodeOf(name)});
  }
  picture.alive = workers_.registered();
  return picture;
}

void Scheduler::Start(const Decisions::Start& start) {
  std::map<std::string, std::string> metrics;
  for (const v1::WorkerStatus& worker : workers_.List()) metrics[worker.name()] = worker.metrics_url();
  std::vector<Placement> placement;
  for (const std::string& worker : start.workers) placement.push_back({worker, metrics[worker]});
  const absl::StatusOr<std::string> attempt = jobs_.StartAttempt(start.job, placement);
  if (!attempt.ok()) {
    jobs_.SetWaiting(start.job,
                     absl::StrCat("could not be started: ", std::string(attempt.status().message())));
    return;
  }
  const absl::StatusOr<v1::JobStatus> status = jobs_.Get(start.job);
  if (!status.ok()) return;
  for (const v1::RankStatus& rank : status->ranks()) {
    workers_.Send(rank.worker(), StartCommand(*status, rank.rank()));
  }
}

void Scheduler::Tick() {
  const Decisions decisions = Decide(Look());
  for (const Decisions::Start& start : decisions.start) Start(start);
  for (const Decisions::Wait& wait : decisions.wait) jobs_.SetWaiting(wait.job, wait.reason);
}

v1::ToWorker StartCommand(const v1::JobStatus& status, int rank) {
  v1::ToWorker message;
  v1::StartRank& start = *message.mutable_start();
  start.set_job_id(status.id());
  *start.mutable_start()->mutable_job() = status.job();
  *start.mutable_start()->mutable_plan() = status.plan();
  start.mutable_start()->set_rank(rank);
  start.mutable_start()->set_attempt(status.attempt());
  return message;
}

}  // namespace metp
