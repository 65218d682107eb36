#include "worker/daemon/device.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

namespace metp {
namespace {

int UsableCores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)));
}

/// The control group's limit (version 2), or 0: "max" does not parse as a number.
int64_t GroupLimit() {
  int64_t limit = 0;
  std::ifstream("/sys/fs/cgroup/memory.max") >> limit;
  return limit;
}

}  // namespace

Device ProbeDevice(int threads, int sharing) {
  Device device;
  device.threads = threads > 0 ? threads : std::max(1, UsableCores() / sharing);
  device.memory_bytes = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  if (const int64_t limit = GroupLimit(); limit > 0)
    device.memory_bytes = std::min(device.memory_bytes, limit);
  device.memory_bytes /= sharing;
  return device;
}

}  // namespace metp
