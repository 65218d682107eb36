#pragma once

// The plan by even split: what `auto` becomes. The coordinator stores the result with the job; a rank run by
// hand makes the same one.

#include <string>

#include "metp/v1/job.pb.h"
#include "metp/v1/plan.pb.h"

namespace metp {

/// `job`: normalized and valid. Degree auto: `workers`, all there are; head groups auto: one per rank, as far as the key/value
/// heads go (more than kv_heads count as kv_heads, with a note); tile rows auto: kAutoTileRows; recompute
/// auto: selective.
v1::Plan ResolvePlan(const v1::JobSpec& job, int workers = 1);

/// "none", "selective" or "full".
std::string RecomputeName(v1::ParallelSpec::Recompute recompute);

/// What a plan sets beside its degree: "8 head groups, tile rows 4096, recompute full, offload activations".
std::string PlanSettings(const v1::Plan& plan);

/// Rows of an MLP or loss tile where the job leaves them open: wide enough for full speed of the products on
/// a CPU (measured: tests/bench/README.md), small beside a long sequence.
inline constexpr int kAutoTileRows = 512;

}  // namespace metp
