#include <algorithm>

#include "proto/support/status_macros.h"
#include "server/planner/overlap.h"
#include "server/planner/planner.h"
#include "worker/backend/sim/profile.h"
#include "worker/model/plan.h"
#include "worker/rank/simulate.h"

namespace metp {

namespace {

void AddPasses(std::vector<PassOverlap> overlap, const v1::StepReport& step, v1::Prediction& prediction) {
  const auto replicas = step.passes().find(std::string(PassName(Pass::kReplicas)));
  if (replicas != step.passes().end() && replicas->second.hops() > 0)
    overlap.push_back({Pass::kReplicas, false, 0, 0});  // at the end of a step, beside nothing
  for (const PassOverlap& pass : overlap) {
    v1::PassPrediction& row = *prediction.add_passes();
    row.set_pass(std::string(PassName(pass.pass)));
    row.set_verdict(pass.verdict);
    row.set_hop_compute_seconds(pass.compute);
    row.set_hop_communication_seconds(pass.communication);
    row.set_hides(pass.hides());
    const auto simulated = step.passes().find(row.pass());
    if (simulated == step.passes().end()) continue;
    row.set_compute_seconds(simulated->second.compute_seconds());
    row.set_communication_seconds(simulated->second.communication_seconds());
    row.set_exposed_seconds(simulated->second.exposed_seconds());
    row.set_simulation_hides(4 * simulated->second.exposed_hops() <= simulated->second.hops());
  }
}

}  // namespace

absl::StatusOr<v1::Prediction> Predict(const v1::JobSpec& job, const v1::Plan& plan,
                                       const v1::DeviceProfile& profile) {
  METP_ASSIGN_OR_RETURN(const std::vector<v1::StepReport> reports, SimulateStep(job, plan, profile));
  const auto fullest = std::max_element(reports.begin(), reports.end(), [](const auto& a, const auto& b) {
    return a.peak_bytes() < b.peak_bytes();
  });
  const auto slowest = std::max_element(reports.begin(), reports.end(), [](const auto& a, const auto& b) {
    return a.step_seconds() < b.step_seconds();
  });
  v1::Prediction prediction;
  prediction.set_profile(profile.name());
  prediction.set_peak_bytes(fullest->peak_bytes());
  *prediction.mutable_peak_bytes_by_category() = fullest->peak_bytes_by_category();
  prediction.set_usable_bytes(UsableBytes(profile));
  prediction.set_host_peak_bytes(fullest->host_peak_bytes());
  prediction.set_host_usable_bytes(profile.one_memory() ? UsableBytes(profile)
                                                        : ShareOfHost(profile, RanksOf(plan)).memory_bytes);
  prediction.set_fits(FindsRoom(profile, RanksOf(plan), fullest->peak_bytes(), fullest->host_peak_bytes()));
  const double seconds = slowest->step_seconds();
  prediction.set_step_seconds(seconds);
  prediction.set_tokens_per_second(static_cast<double>(slowest->tokens()) / seconds);
  prediction.set_mfu(slowest->model_flops() / seconds / (profile.peak_flops_per_second() * RanksOf(plan)));
  for (const auto& [name, pass] : slowest->passes())
    prediction.set_exposed_seconds(prediction.exposed_seconds() + pass.exposed_seconds());
  *prediction.mutable_host() = slowest->host();
  const std::vector<PassOverlap> overlap = OverlapOf(job, plan, profile);
  AddPasses(overlap, *slowest, prediction);
  prediction.set_full_overlap(FullOverlap(overlap));
  prediction.set_smallest_sequence(SmallestFullOverlapSequence(job, plan, profile));
  prediction.set_largest_degree(LargestFullOverlapDegree(job, plan, profile));
  return prediction;
}

}  // namespace metp
