#include "server/planner/planner.h"

#include "worker/model/plan.h"

namespace metp {

absl::StatusOr<v1::Plan> PlanJob(const v1::JobSpec& job) { return ResolvePlan(job); }

}  // namespace metp
