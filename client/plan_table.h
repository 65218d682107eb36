#pragma once

// A plan and its prediction, for people and for programs. Pure. Everything in it is simulated, but for what
// peers would do, which is modelled; it says so.

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "metp/v1/job.pb.h"
#include "metp/v1/plan.pb.h"
#include "metp/v1/profile.pb.h"
#include "server/planner/peers.h"

namespace metp {

struct PlanAnswer {
  v1::JobSpec job;
  v1::DeviceProfile profile;
  v1::Plan plan;
  v1::Prediction prediction;
  std::optional<int64_t> max_sequence;  // where it was asked for
  std::vector<PeerEstimate> peers;      // where a comparison was asked for
  int64_t plan_max_sequence = 0;        // beside them: the longest at exactly this plan
};

std::string PlanText(const PlanAnswer& answer);

/// Keys as in PlanText: plan{degree, head_groups, tile_rows, recompute, offload, notes}; profile; simulated (true);
/// sequence_length; max_sequence where asked for; memory{peak_bytes, peak_bytes_by_category, usable_bytes,
/// fits}; step_seconds, tokens_per_second, tokens_per_second_per_device, mfu, exposed_seconds;
/// passes{NAME{...}}; full_overlap{holds, smallest_sequence, largest_degree} (0: none); where a comparison
/// was asked for compare[{method, modelled (false for METP, which comes first), equal_means, possible,
/// why_not, max_sequence, peak_bytes, bytes_by_part, fits, step_seconds}].
nlohmann::ordered_json PlanJson(const PlanAnswer& answer);

}  // namespace metp
