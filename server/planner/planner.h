#pragma once

// From a valid job to the plan that its ranks will run. Pure.

#include "absl/status/statusor.h"
#include "metp/v1/job.pb.h"
#include "metp/v1/plan.pb.h"

namespace metp {

/// `job`: normalized and valid. The even split of worker/model/plan.h.
absl::StatusOr<v1::Plan> PlanJob(const v1::JobSpec& job);

}  // namespace metp
