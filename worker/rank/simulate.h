#pragma once

// One training step on a simulated device: the step code of worker/model and worker/ring, unmodified, over
// worker/backend/sim. Pure: nothing is read, started or measured. What it reports is simulated.

#include <vector>

#include "absl/status/statusor.h"
#include "metp/v1/job.pb.h"
#include "metp/v1/plan.pb.h"
#include "metp/v1/profile.pb.h"
#include "metp/v1/report.pb.h"
#include "worker/telemetry/timeline.h"

namespace metp {

/// Micro-batches after the second are not simulated: they cost what the second did.
///
/// What rank `rank` of the first ring of `plan` would report of its first step, losses aside. Memory is counted even beyond what
/// the device has. `job`: normalized and valid; `profile`: complete and valid. `timeline`, unless null,
/// receives what its streams did.
absl::StatusOr<v1::StepReport> SimulateRank(const v1::JobSpec& job, const v1::Plan& plan,
                                            const v1::DeviceProfile& profile, int rank,
                                            Timeline* timeline = nullptr);

/// For each rank of the ring the first one whose shapes equal its own (tokens, and parts of h, f, V), so that
/// only distinct shapes need to be simulated. Equal shapes take equal memory, and times that differ by the
/// order in which uneven parts pass by.
std::vector<int> RepresentativeRanks(const v1::JobSpec& job, int degree);

/// Reports of all ranks of the first ring, each representative simulated once; other rings' hold no more and take no
/// longer.
absl::StatusOr<std::vector<v1::StepReport>> SimulateStep(const v1::JobSpec& job, const v1::Plan& plan,
                                                         const v1::DeviceProfile& profile);

}  // namespace metp
