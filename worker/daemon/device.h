#pragma once

// What this worker's device is: for a CPU worker, its share of the machine.

#include <cstdint>
#include <string>

namespace metp {

struct Device {
  std::string kind = "cpu";
  int threads = 1;           // compute threads of a rank
  int64_t memory_bytes = 0;  // its share of the machine, or of the control group where that is smaller
};

/// One of `sharing` workers that share the machine. `threads` 0: its share of what this process may run on, at least 1.
Device ProbeDevice(int threads, int sharing);

}  // namespace metp
