#include "worker/model/plan.h"

#include <algorithm>
#include <string>

namespace metp {

v1::Plan ResolvePlan(const v1::JobSpec& job, int workers) {
  const v1::ParallelSpec& parallel = job.parallel();
  const int g = job.model().kv_heads();
  v1::Plan plan;
  plan.set_degree(parallel.degree() == 0 ? std::max(1, workers) : parallel.degree());
  if (parallel.degree() == 0)
    plan.add_notes("degree auto: " + std::to_string(plan.degree()) + ", all there are");

  const int asked = parallel.head_groups();
  plan.set_head_groups(std::min(asked == 0 ? plan.degree() : asked, g));
  if (asked == 0) {
    plan.add_notes("head_groups auto: " + std::to_string(plan.head_groups()) +
                   ", one per rank up to kv_heads " + std::to_string(g));
  } else if (asked > g) {
    plan.add_notes("head_groups " + std::to_string(asked) + " count as " + std::to_string(g) +
                   ": a key/value head is never split");
  }

  const int rows = parallel.tile_rows();
  plan.set_tile_rows(rows == 0 ? kAutoTileRows : std::max(rows, 0));
  if (rows == 0) plan.add_notes("tile_rows auto: " + std::to_string(kAutoTileRows));
  const bool auto_recompute = parallel.recompute() == v1::ParallelSpec::RECOMPUTE_AUTO;
  plan.set_recompute(auto_recompute ? v1::ParallelSpec::RECOMPUTE_SELECTIVE : parallel.recompute());
  if (auto_recompute) plan.add_notes("recompute auto: selective, for want of a device profile");
  const auto& offload = parallel.offload();
  plan.set_offload_activations(
      std::count(offload.begin(), offload.end(), v1::ParallelSpec::OFFLOAD_ACTIVATIONS) > 0);
  if (std::count(offload.begin(), offload.end(), v1::ParallelSpec::OFFLOAD_AUTO) > 0)
    plan.add_notes("offload auto: none, for want of a device profile");
  return plan;
}

std::string RecomputeName(v1::ParallelSpec::Recompute recompute) {
  switch (recompute) {
    case v1::ParallelSpec::RECOMPUTE_NONE:
      return "none";
    case v1::ParallelSpec::RECOMPUTE_FULL:
      return "full";
    default:
      return "selective";
  }
}

std::string PlanSettings(const v1::Plan& plan) {
  return std::to_string(plan.head_groups()) + (plan.head_groups() == 1 ? " head group" : " head groups") +
         ", tile rows " + (plan.tile_rows() == 0 ? "whole" : std::to_string(plan.tile_rows())) +
         ", recompute " + RecomputeName(plan.recompute()) +
         (plan.offload_activations() ? ", offload activations" : "");
}

}  // namespace metp
