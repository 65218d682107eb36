#include "worker/model/plan.h"

#include <algorithm>
#include <string>

namespace metp {

v1::Plan ResolvePlan(const v1::JobSpec& job, int workers) {
  const v1::ParallelSpec& parallel = job.parallel();
  const int g = job.model().kv_heads();
  v1::Plan plan;
  plan.set_rings(std::max(1, parallel.rings()));
  plan.set_degree(parallel.degree() == 0 ? std::max(1, workers / plan.rings()) : parallel.degree());
  if (parallel.rings() == 0) plan.add_notes("rings auto: 1");
  if (parallel.degree() == 0)
    plan.add_notes("degree auto: " + std::to_string(plan.degree()) + " of " + std::to_string(workers) +
                   (workers == 1 ? " worker" : " workers") +
                   (plan.rings() == 1 ? "" : ", over " + std::to_string(plan.rings()) + " rings"));

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
  if (auto_recompute) plan.add_notes("recompute auto: selective");
  const auto offloads = [&](v1::ParallelSpec::Offload what) {
    return std::count(parallel.offload().begin(), parallel.offload().end(), what) > 0;
  };
  plan.set_offload_activations(offloads(v1::ParallelSpec::OFFLOAD_ACTIVATIONS));
  plan.set_offload_optimizer(offloads(v1::ParallelSpec::OFFLOAD_OPTIMIZER));
  if (offloads(v1::ParallelSpec::OFFLOAD_AUTO)) plan.add_notes("offload auto: none");
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

std::string OffloadName(const v1::Plan& plan) {
  if (!plan.offload_activations()) return plan.offload_optimizer() ? "optimizer" : "";
  return plan.offload_optimizer() ? "activations and optimizer" : "activations";
}

std::string PlanSettings(const v1::Plan& plan) {
  const std::string offload = OffloadName(plan);
  return (RingsOf(plan) == 1 ? "" : std::to_string(RingsOf(plan)) + " rings, ") +
         std::to_string(plan.head_groups()) + (plan.head_groups() == 1 ? " head group" : " head groups") +
         ", tile rows " + (plan.tile_rows() == 0 ? "whole" : std::to_string(plan.tile_rows())) +
         ", recompute " + RecomputeName(plan.recompute()) + (offload.empty() ? "" : ", offload " + offload);
}

}  // namespace metp
