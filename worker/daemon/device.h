#pragma once

// What this worker's device is: its share of the machine's CPU, or a GPU.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "worker/telemetry/gpu/nvml.h"

namespace metp {

struct Device {
  std::string kind = "cpu";  // or the GPU's product name
  int threads = 1;           // compute threads of a rank
  /// A CPU worker's share of the machine, or of the control group where that is smaller; or all that the GPU has.
  int64_t memory_bytes = 0;
  std::string gpu = {};  // its UUID; empty: the CPU
  std::string driver = {};
  int64_t host_memory_bytes = 0;  // beside a GPU: of all workers on this machine together
};

/// One of `sharing` workers that share the machine. `threads` 0: its share of what this process may run on, at least 1.
Device ProbeDevice(int threads, int sharing);
/// The same worker with a GPU.
Device WithGpu(const Device& cpu, int sharing, const GpuIdentity& gpu, const GpuMemory& memory);

/// One line for people: "cpu"; "NVIDIA H200 GPU-5f6b1a2c, driver 580.95.05".
std::string Describe(const Device& device);

/// What processes that compute get beside this one's environment: they see the GPU of that UUID alone, as number 0.
std::vector<std::pair<std::string, std::string>> ComputeEnvironment(const std::string& gpu);

}  // namespace metp
