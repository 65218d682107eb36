#include "proto/support/status_macros.h"
#include "worker/rank/run.h"
#include "worker/rank/simulate.h"

namespace metp {

absl::StatusOr<RunRecord> RunSim(const RunRequest& request, const v1::DeviceProfile& profile) {
  METP_ASSIGN_OR_RETURN(std::vector<v1::StepReport> reports,
                        SimulateStep(request.job, request.plan, profile));
  RunRecord record;
  record.simulated_on = profile.name();
  for (v1::StepReport& report : reports) {
    record.steps.push_back({std::move(report)});
    record.sgemm_flops_per_second.push_back(profile.peak_flops_per_second());
  }
  return record;
}

}  // namespace metp
