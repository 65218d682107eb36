#pragma once

// What one rank computes on, and the wire that goes with it: the CPU with threads of this process or Gloo, a GPU with device
// copies or NCCL. The one place where a rank's code chooses.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "metp/v1/profile.pb.h"
#include "metp/v1/rank.pb.h"
#include "worker/backend/backend.h"
#include "worker/comm/communicator.h"

namespace metp {

/// What a device is, as its driver says.
struct DeviceFacts {
  std::string product;       // "NVIDIA H200"; "cpu"
  int64_t memory_bytes = 0;  // all that it has
};

class RankDevice {
 public:
  virtual ~RankDevice() = default;
  RankDevice() = default;
  RankDevice(const RankDevice&) = delete;
  RankDevice& operator=(const RankDevice&) = delete;

  virtual Backend& backend() = 0;

  /// Place `rank` of a ring of `size` processes. `address`: see MakeGlooCommunicator. Blocks until connected.
  virtual absl::StatusOr<std::unique_ptr<Communicator>> Join(int rank, int size, const std::string& address,
                                                             Rendezvous& rendezvous,
                                                             CommunicatorOptions options) = 0;
  /// A ring of threads of this process, one on each of `devices`, which are of this one's kind.
  virtual absl::StatusOr<std::vector<std::unique_ptr<Communicator>>> JoinThreads(
      const std::vector<RankDevice*>& devices, CommunicatorOptions options) = 0;

  /// Best rate of large products, FLOP/s, in the type of activations: what MFU is measured against.
  virtual double MeasureFlops() = 0;

  virtual DeviceFacts Facts() = 0;
};

struct RankDeviceOptions {
  v1::JobSpec::Device device = v1::JobSpec::DEVICE_CPU;
  v1::DeviceProfile::Precision precision = v1::DeviceProfile::PRECISION_FP32;
  int threads = 1;  // of the host
};

/// The device of a rank, for the rank's own thread. InvalidArgument where the backend does not compute in that precision;
/// FailedPrecondition where this build has no such backend, or it or the driver does not fit the device; Internal where there
/// is no such device; ResourceExhausted.
absl::StatusOr<std::unique_ptr<RankDevice>> OpenRankDevice(const RankDeviceOptions& options);

int64_t MachineMemoryBytes();

/// The CUDA one, out of metp-cuda.so (cuda_module.h).
absl::StatusOr<std::unique_ptr<RankDevice>> OpenCudaRankDevice(const RankDeviceOptions& options);

}  // namespace metp
