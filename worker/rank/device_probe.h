#pragma once

// One device measured through its backend, whatever it is: the figures that device profiles are made of.

#include <cstdint>
#include <limits>
#include <vector>

#include "metp/v1/profile.pb.h"
#include "worker/backend/backend.h"
#include "worker/comm/communicator.h"

namespace metp {

/// One measured kernel: amounts of its two kinds of work, and the seconds it took.
struct Sample {
  double first = 0, second = 0, seconds = 0;
};

/// The samples of one rank, every kind in the same order on every rank.
struct Measured {
  std::vector<Sample> gemm, attention_forward, attention_backward;  // flops and bytes; flops and scores
  Sample memory;                                                    // bytes
  double launch = 0;
  v1::Link link;
  int64_t workspace = 0;
};

/// How large the measured work is, and how it is repeated.
struct ProbeEffort {
  /// Doubled from the least while a call is short, up to the most.
  struct Extent {
    int64_t least, most;
  };
  Extent side;       // of the widest product
  Extent rows;       // of a block of attention
  Extent pointwise;  // rows and columns of what is bound by memory
  int heads;         // of a block of attention whose heads are 64 wide
  /// Calls return before they are done, and a short one is timed in a row of its like: with others waiting behind it.
  bool queued = false;
  /// Past these nothing grows any more, and a call is timed once.
  double seconds = std::numeric_limits<double>::infinity();
};

/// All ranks of `communicator` at once, with equal efforts; where extents leave a choice, of a single one. About 0.12 s
/// for each of some twenty kernels, or a few calls where these take longer. Throws StepError.
Measured MeasureDevice(Backend& backend, Communicator& communicator, const ProbeEffort& effort);

/// What products, attention, memory and starts of kernels take, into a profile.
void SetRates(const Measured& measured, v1::DeviceProfile& profile);

/// Seconds per unit of each kind of work, neither negative, such that first * a + second * b comes closest to
/// `seconds` (least squares of relative errors). Samples must not be empty, nor their seconds zero.
struct Fit {
  double a = 0, b = 0;
};
Fit FitRates(const std::vector<Sample>& samples);

}  // namespace metp
