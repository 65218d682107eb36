#include "worker/daemon/device.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "absl/strings/str_cat.h"

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

Device WithGpu(const Device& cpu, int sharing, const GpuIdentity& gpu, const GpuMemory& memory) {
  Device device = cpu;
  device.kind = gpu.name;
  device.memory_bytes = memory.total_bytes;
  device.gpu = gpu.uuid;
  device.driver = gpu.driver;
  device.host_memory_bytes = cpu.memory_bytes * sharing;
  return device;
}

std::string Describe(const Device& device) {
  if (device.gpu.empty()) return device.kind;
  // The first group of a UUID tells devices apart as far as people do.
  const size_t group = device.gpu.find('-', device.gpu.find('-') + 1);
  return absl::StrCat(device.kind, " ", device.gpu.substr(0, group), ", driver ", device.driver);
}

std::vector<std::pair<std::string, std::string>> ComputeEnvironment(const std::string& gpu) {
  if (gpu.empty()) return {};
  return {{"CUDA_VISIBLE_DEVICES", gpu}};
}

}  // namespace metp
