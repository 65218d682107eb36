#pragma once

// The profile of this worker's device, by which the coordinator plans.

#include <functional>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "metp/v1/profile.pb.h"
#include "worker/daemon/config.h"
#include "worker/daemon/device.h"

namespace metp {

/// As config.profile says, of a worker on the CPU in fp32. "measure": what the cache has, or else what `metp-rank probe` measures, which then goes into
/// the cache; workers that start together on one machine measure once, the others wait. nullopt: "none". Cancelled:
/// `cancelled`, asked several times a second, said so. DeadlineExceeded: it took longer than config.profile_timeout.
/// Workers with GPUs of one product share a cached profile, beside that of workers on the CPU.
/// `not_kept` is told why a measured profile could not go into the cache.
using NotKept = std::function<void(const absl::Status&)>;
absl::StatusOr<std::optional<v1::DeviceProfile>> ProfileOfThisWorker(const WorkerConfig& config,
                                                                     const Device& device,
                                                                     const std::function<bool()>& cancelled,
                                                                     const NotKept& not_kept);

/// $XDG_CACHE_HOME/metp, or ~/.cache/metp, or a folder for this user under /tmp.
std::string DefaultProfileCache();

}  // namespace metp
