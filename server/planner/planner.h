#pragma once

// From a valid job to the plan that its ranks will run, and what it will cost. Pure: the same job and profile give
// the same plan, and nothing is read or measured. Seconds and bytes come from the training step itself, run on
// the simulated device (worker/rank/simulate.h).

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "metp/v1/job.pb.h"
#include "metp/v1/plan.pb.h"
#include "metp/v1/profile.pb.h"
#include "server/planner/candidates.h"

namespace metp {

/// Whether a rank of `plan` finds room in `memory_bytes` of its device. FailedPrecondition where it does not: "parallel.degree: found 2, but each rank needs ...".
absl::Status CheckMemory(const v1::JobSpec& job, const v1::Plan& plan, int64_t memory_bytes);

/// One step of `plan` on devices of `profile`. `profile`: complete and valid.
absl::StatusOr<v1::Prediction> Predict(const v1::JobSpec& job, const v1::Plan& plan,
                                       const v1::DeviceProfile& profile);

inline constexpr int64_t kMostTokens = std::numeric_limits<int32_t>::max() - 1;  // of a sequence

/// How far a search goes: it stays within what somebody waits for.
struct SearchLimits {
  double kernels =
      std::numeric_limits<double>::infinity();  // of one simulated step; a longer one counts as not fitting
  int devices = kMostDevices;                   // that a way to fit may ask for
};

struct Choice {
  v1::Plan plan;
  v1::Prediction prediction;
};

/// The fastest plan that fits, among all values of what the job leaves to `auto` (degree times rings: up to `devices`); a
/// note names the runner-up. With require_full_overlap only plans that overlap fully count; FailedPrecondition where
/// none does. Where none fits ResourceExhausted: what the smallest plan needs, the longest
/// sequence that would fit, and the cheapest change that makes the job fit. Cancelled: nothing that was simulated within
/// `limits` fits, and something that was not may.
absl::StatusOr<Choice> ChoosePlan(const v1::JobSpec& job, const v1::DeviceProfile& profile, int devices,
                                  const SearchLimits& limits = {});

/// What there is to plan a job on.
struct Workers {
  int count = 0;
  /// What they have in common: complete and valid, but for a node_link that nobody has measured. nullopt: not known.
  std::optional<v1::DeviceProfile> profile = {};
  int profiled = 0;                                        // workers of whom it speaks
  std::vector<int64_t> memory_bytes = {};                  // of those who said, most first
  const char* limit = "the number of registered workers";  // what bounds the count
  v1::JobSpec::Device device = v1::JobSpec::DEVICE_CPU;    // cpu or gpu
};

/// The plan of a submitted job. With a profile ChoosePlan's, and its errors; without one, or where simulating all
/// candidates would keep the user waiting, the even split of worker/model/plan.h with a note saying so, and no
/// prediction (profile empty): FailedPrecondition where full overlap is required and cannot be checked.
/// FailedPrecondition: more ranks than workers, or than workers with the memory; a head width that GPUs cannot do.
absl::StatusOr<Choice> PlanOn(const v1::JobSpec& job, const Workers& workers);

/// The longest data.sequence_length at which the job fits, in multiples of 2p tokens, with what it leaves to `auto`
/// set to what takes least memory; 0: none. The plan is the one of that sequence.
struct LongestSequence {
  int64_t tokens = 0;
  v1::Plan plan;
};
absl::StatusOr<LongestSequence> MaxSequence(const v1::JobSpec& job, const v1::DeviceProfile& profile,
                                            int devices, const SearchLimits& limits = {});
/// The same of one plan: tokens, 0: none.
absl::StatusOr<int64_t> MaxSequenceOf(const v1::JobSpec& job, const v1::Plan& plan,
                                      const v1::DeviceProfile& profile, const SearchLimits& limits = {});

/// The cheapest change at which the job fits: "parallel.recompute=full (12.3 s a step)". Empty where nothing
/// helps.
std::string CheapestWayToFit(const v1::JobSpec& job, const v1::Plan& plan, const v1::DeviceProfile& profile,
                             const SearchLimits& limits = {});

/// The job with another data.sequence_length; a position table that ended with the sequence, or would, follows.
v1::JobSpec WithSequence(const v1::JobSpec& job, int64_t tokens);

}  // namespace metp
