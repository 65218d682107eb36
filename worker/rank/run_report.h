#pragma once

// What `metp-rank run` prints at the end.

#include <nlohmann/json.hpp>
#include <string>

#include "worker/rank/run.h"

namespace metp {

/// Keys:
///   losses, grad_norms, step_seconds: one number a step of this run; the first is step `first_step`
///   tokens_per_second: tokens of all steps over their seconds
///   sgemm_flops_per_second: best of 1024^3 and 2048^3, all ranks at once, summed over ranks
///   mfu: model FLOPs of all steps over their seconds and that rate
///   ranks[]: peak_bytes; peak_bytes_by_category (the state at the peak); peak_bytes_by_tag (each tag's own
///     peak); host_peak_bytes (offloaded); sent_bytes; passes{} with compute, communication, exposed and skew seconds, summed over steps
///   overlap: 1 - exposed / communication over the hops of all ranks and passes; null for one rank
///   degree, head_groups, tile_rows, recompute, offload_activations, threads, notes: the plan that was run
///   simulated_on: the profile, where nothing was measured; there are no losses then
/// Norms and copies between passes, and the all-reduces at the end of a step, are in step_seconds only.
nlohmann::ordered_json RunReport(const RunRequest& request, const RunRecord& record);

/// The same for a person: a few lines.
std::string RunSummary(const nlohmann::ordered_json& report);

}  // namespace metp
