#pragma once

// What this worker's device is: for a CPU worker, its share of the machine.

#include <cstdint>
#include <string>

namespace metp {

struct Device {
  std::string kind = "cpu";
  int threads = 1;           // compute threads of a rank
  int64_t memory_bytes = 0;  // of the machine, or of the control group where that is smaller
};

/// `threads` 0: as many as this process may run on.
Device ProbeDevice(int threads);

}  // namespace metp
