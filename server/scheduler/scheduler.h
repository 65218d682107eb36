#pragma once

// The acting half of scheduling: takes a picture of jobs and workers, asks the policy, carries its decisions
// out. The one place where attempts begin. Called by the controller on its thread.

#include "server/job_table.h"
#include "server/registry.h"
#include "server/scheduler/policy.h"

namespace metp {

class Scheduler {
 public:
  Scheduler(const CoordinatorConfig& config, JobTable& jobs, Registry& workers)
      : config_(config), jobs_(jobs), workers_(workers) {}

  /// Starts what can start; returns what was decided: the attempts that began, and a reason for every job that waits.
  Decisions Tick();

 private:
  ClusterPicture Look() const;
  absl::Status Start(const Decisions::Start& start);

  const CoordinatorConfig& config_;
  JobTable& jobs_;
  Registry& workers_;
};

/// The command that starts rank `rank` of the job's last attempt.
v1::ToWorker StartCommand(const v1::JobStatus& status, int rank);

}  // namespace metp
