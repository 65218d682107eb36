#pragma once

// What GPUs a machine has and how they do, as NVIDIA's driver says through its management library (NVML), which is opened
// at run time: nothing here needs a GPU or a driver to build or to start. All of it may be called from any thread.
//
// Errors of calls: Unimplemented, this device or driver does not tell; Unavailable, the device is lost or needs a reset;
// PermissionDenied; otherwise Internal. Messages name the call: "nvmlDeviceGetUUID: GPU is lost".

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace metp {

inline constexpr char kNvmlLibrary[] = "libnvidia-ml.so.1";

/// The oldest that CUDA kernels of this program run on. A driver counts as new enough by either: older ones with NVIDIA's
/// compatibility package say a newer CUDA.
inline constexpr int kLeastDriver = 580;
inline constexpr int kLeastCudaMajor = 13;

struct GpuMemory {
  int64_t total_bytes = 0;  // what programs can have: less than is built in by what the driver keeps
  int64_t used_bytes = 0;   // of it, by all programs
};

struct GpuProcess {
  int64_t pid = 0;  // as the driver counts: in a container perhaps not as it does
  std::optional<int64_t> bytes;
};

struct GpuIdentity {
  int index = 0;     // as nvidia-smi counts
  std::string uuid;  // "GPU-5f6b1a2c-..."
  std::string name;  // "NVIDIA H200"
  std::string bus;   // "00000000:3B:00.0"
  std::string driver;
  int major = 0, minor = 0;  // compute capability
};

struct NvmlLibrary;
struct NvmlEvents;

/// Critical errors of one device that come after this was made.
class XidEvents {
 public:
  explicit XidEvents(std::unique_ptr<NvmlEvents> events);
  ~XidEvents();
  /// Their numbers, oldest first, each given once; waits up to `wait` for the first.
  std::vector<int> Take(std::chrono::milliseconds wait);

 private:
  std::unique_ptr<NvmlEvents> events_;
};

class Gpu {
 public:
  const GpuIdentity& identity() const { return identity_; }
  const std::string& uuid() const { return identity_.uuid; }
  /// "0 (GPU-5f6b1a2c-..., NVIDIA H200)".
  std::string Label() const;

  absl::StatusOr<GpuMemory> Memory() const;
  /// Those that compute; without the ones that draw.
  absl::StatusOr<std::vector<GpuProcess>> Processes() const;
  /// Memory errors that could not be corrected, since the driver was loaded.
  absl::StatusOr<int64_t> UncorrectedErrors() const;
  /// Split into instances (MIG); false where it cannot be.
  absl::StatusOr<bool> Split() const;
  /// Its compute mode lets no program compute.
  absl::StatusOr<bool> ComputeProhibited() const;
  absl::StatusOr<std::unique_ptr<XidEvents>> WatchXids() const;

 private:
  friend class Nvml;
  Gpu(std::shared_ptr<const NvmlLibrary> library, void* device) : library_(library), device_(device) {}

  std::shared_ptr<const NvmlLibrary> library_;
  void* device_;
  GpuIdentity identity_;
};

class Nvml {
 public:
  /// `library`: a name that the loader finds, or a path. NotFound: no driver is here; FailedPrecondition: it is too old;
  /// both say what was found and what is needed.
  static absl::StatusOr<Nvml> Open(const std::string& library = kNvmlLibrary);

  const std::string& driver() const;
  /// All devices, in the order of their indices; an error in the place of one that does not answer.
  absl::StatusOr<std::vector<absl::StatusOr<Gpu>>> Gpus() const;

 private:
  explicit Nvml(std::shared_ptr<const NvmlLibrary> library) : library_(std::move(library)) {}
  absl::StatusOr<Gpu> At(int index) const;

  std::shared_ptr<const NvmlLibrary> library_;
};

}  // namespace metp
