#pragma once

// What a host-memory communicator needs from the wire: one hop at a time, run to its end. HostCommunicator
// owns one Transport and calls Run from its communication thread; Cancel may come from any thread.

#include <chrono>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/comm/communicator.h"

namespace metp {

using TimePoint = std::chrono::steady_clock::time_point;

/// One hop as the wire sees it. Every transfer is contiguous and not empty.
struct Hop {
  uint64_t sequence =
      0;         // counts every hop of the communicator from 1, those of collectives too; equal on all ranks
  HopId id = 0;  // as the caller knows it; 0 inside a collective
  const char* collective = nullptr;  // "all-reduce", "barrier" or nullptr
  Exchange exchange;
  TimePoint deadline;
};

/// "hop 7", or "all-reduce": how messages name it.
std::string HopName(const Hop& hop);

int64_t TotalBytes(const std::vector<Matrix>& transfers);

struct HopTimes {
  TimePoint start;  // the communication stream came to this hop
  TimePoint ready;  // start, or the moment from which the neighbours that take part were there too
  TimePoint done;
};

class Transport {
 public:
  virtual ~Transport() = default;
  /// Runs one hop. Unavailable: the neighbour is gone (named); DeadlineExceeded naming hop and neighbour;
  /// InvalidArgument: both sides' sizes differ; the reason of Cancel. No hop is run after one that failed.
  /// Once it has returned, with whatever result, nothing touches the hop's buffers any more.
  virtual absl::StatusOr<HopTimes> Run(const Hop& hop) = 0;
  /// Makes the running hop, or the next one, end soon with `reason`, and lets the neighbours notice. The
  /// first reason stays.
  virtual void Cancel(const absl::Status& reason) = 0;
};

}  // namespace metp
