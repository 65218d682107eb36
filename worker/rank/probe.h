#pragma once

// The device probe: what a profile needs, measured on the machine itself.

#include <string>

#include "metp/v1/profile.pb.h"
#include "worker/rank/device_probe.h"

namespace metp {

/// What the ranks of a ring on this machine exchange messages through.
enum class ProbedLink {
  kMemory,    // ranks are threads of one process
  kLoopback,  // ranks are processes, over Gloo
};

/// Measures `ranks` ranks of `threads` threads on this machine's CPU, all at once: products and attention over a few
/// shapes, operations bound by memory, messages over a ring. About five seconds. Of each figure the
/// slowest rank's counts. The machine's memory is shared out evenly. Complete and valid; throws StepError.
v1::DeviceProfile ProbeThisMachine(int ranks, int threads, ProbedLink link = ProbedLink::kMemory);

/// Measures the first GPU that this process sees, in bf16, with `threads` threads of the host: the same, with shapes that
/// grow until they keep it busy, and copies to and from host memory, both at once. After ten seconds nothing grows any more,
/// and what is left is measured once. `gpus`: how many of its kind this machine has; links between them cannot be measured
/// by one (SetFirstLinks). Complete and valid; throws StepError.
v1::DeviceProfile ProbeThisGpu(int gpus, int threads);

/// What plans start from until ranks have measured their ring's links: those of the product's built-in profile, or, where
/// there is none, the profile's host_link. Returns which, in words. Throws StepError.
std::string SetFirstLinks(const std::string& product, v1::DeviceProfile& profile);

/// The command: prints a profile file. Returns the exit code.
int ProbeCommand(int argc, char** argv);

}  // namespace metp
