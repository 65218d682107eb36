#pragma once

// The device probe: what a profile needs, measured on the machine itself.

#include <vector>

#include "metp/v1/profile.pb.h"

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

/// One measured kernel: amounts of its two kinds of work, and the seconds it took.
struct Sample {
  double first = 0, second = 0, seconds = 0;
};
/// Seconds per unit of each kind of work, neither negative, such that first * a + second * b comes closest to
/// `seconds` (least squares of relative errors). Samples must not be empty, nor their seconds zero.
struct Fit {
  double a = 0, b = 0;
};
Fit FitRates(const std::vector<Sample>& samples);

/// The command: prints a profile file. Returns the exit code.
int ProbeCommand(int argc, char** argv);

}  // namespace metp
