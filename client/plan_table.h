#pragma once

// A plan and its prediction, for people and for programs. Pure. Everything in it is simulated, and says so.

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "metp/v1/job.pb.h"
#include "metp/v1/plan.pb.h"
#include "metp/v1/profile.pb.h"

namespace metp {

struct PlanAnswer {
  v1::JobSpec job;
  v1::DeviceProfile profile;
  v1::Plan plan;
  v1::Prediction prediction;
  std::optional<int64_t> max_sequence;  // where it was asked for
};

std::string PlanText(const PlanAnswer& answer);

/// Keys as in PlanText: plan{degree, head_groups, tile_rows, recompute, notes}; profile; simulated (true);
/// sequence_length; max_sequence where asked for; memory{peak_bytes, peak_bytes_by_category, usable_bytes, fits};
/// step_seconds, tokens_per_second, tokens_per_second_per_device, mfu, exposed_seconds; passes{NAME{...}};
/// full_overlap{holds, smallest_sequence, largest_degree} (0: none).
nlohmann::ordered_json PlanJson(const PlanAnswer& answer);

}  // namespace metp
