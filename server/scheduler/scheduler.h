#pragma once

// The acting half of scheduling: takes a picture of jobs and workers, asks the policy, carries its decisions
// out. The one place where attempts begin. Called by the controller on its thread.

#include "server/job_table.h"
#include "server/registry.h"
#include "server/scheduler/policy.h"

namespace metp {

class Scheduler {
 public:
  Scheduler(JobTable& jobs, Registry& workers) : jobs_(jobs), workers_(workers) {}

  /// Starts what can start and gives every waiting job its reason.
  void Tick();

 private:
  ClusterPicture Look() const;
  void Start(const Decisions::Start& start);

  JobTable& jobs_;
  Registry& workers_;
};

/// The command that starts rank `rank` of the job's last attempt.
v1::ToWorker StartCommand(const v1::JobStatus& status, int rank);

}  // namespace metp
