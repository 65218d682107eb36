#pragma once

// The plan by even split: what `auto` becomes. The coordinator stores the result with the job; a rank run by
// hand makes the same one.

#include <string>

#include "metp/v1/job.pb.h"
#include "metp/v1/plan.pb.h"

namespace metp {

/// `job`: normalized and valid. Degree auto: `workers` over the rings; rings auto: one; head groups auto: one
/// per rank, as far as the key/value heads go (more than kv_heads count as kv_heads, with a note); tile rows
/// auto: kAutoTileRows; recompute auto: selective; offload auto: none.
v1::Plan ResolvePlan(const v1::JobSpec& job, int workers = 1);

/// Data-parallel rings of a plan, and the ranks of all of them; a valid job's are at most a million.
inline int RingsOf(const v1::Plan& plan) { return plan.rings() < 1 ? 1 : plan.rings(); }
inline int RanksOf(const v1::Plan& plan) { return plan.degree() * RingsOf(plan); }

/// The kind of device that its ranks compute on: cpu or gpu.
inline v1::JobSpec::Device KindOf(const v1::Plan& plan) {
  return plan.device() == v1::JobSpec::DEVICE_GPU ? plan.device() : v1::JobSpec::DEVICE_CPU;
}

/// "none", "selective" or "full".
std::string RecomputeName(v1::ParallelSpec::Recompute recompute);

/// What a plan offloads: "activations and optimizer", or empty.
std::string OffloadName(const v1::Plan& plan);

/// What a plan sets beside its degree: "2 rings, 8 head groups, tile rows 4096, recompute full, offload activations".
std::string PlanSettings(const v1::Plan& plan);

/// Rows of an MLP or loss tile where the job leaves them open: wide enough for full speed of the products on
/// a CPU (measured: tests/bench/README.md), small beside a long sequence.
inline constexpr int kAutoTileRows = 512;

}  // namespace metp
