#pragma once

// The GPU of a worker that has one: chosen by the operator, found fit, and taken for this worker alone.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/daemon/config.h"
#include "worker/rank/descriptor.h"
#include "worker/telemetry/gpu/nvml.h"

namespace metp {

/// Held until the worker ends.
struct TakenGpu {
  Gpu gpu;
  GpuMemory memory;  // when it was taken: what is used then is not this worker's
  Descriptor lock;
};

/// The one that `wanted` names: its index, its UUID, or a beginning of its UUID that no other has. `gpus` as Nvml::Gpus
/// gives them. InvalidArgument: it names none, and what would; NotFound: there is none at all.
absl::StatusOr<Gpu> ChooseGpu(const std::string& wanted, const std::vector<absl::StatusOr<Gpu>>& gpus);

/// FailedPrecondition: ranks cannot run on it as it is set up, and what to do.
absl::Status CheckGpuFit(const Gpu& gpu);

/// Unavailable: other programs hold more than `slack_bytes` of its memory, and which.
absl::Status CheckGpuIdle(const Gpu& gpu, int64_t slack_bytes);

/// "pid 71 holds 11800 MiB, pid 80 holds 300 MiB": the programs that compute on it.
std::string HoldersOf(const Gpu& gpu);

/// Lets no other worker of this user have the device until the descriptor is closed; `worker` is what the others are told.
/// AlreadyExists: one has it.
absl::StatusOr<Descriptor> LockGpu(const std::string& uuid, const std::string& folder,
                                   const std::string& worker);

/// A folder for this user under /tmp.
std::string DefaultLockFolder();

/// config.gpu, all of the above in turn, with config.gpu_memory_wait for the memory of an earlier worker's ranks.
absl::StatusOr<TakenGpu> TakeGpu(const WorkerConfig& config);

}  // namespace metp
