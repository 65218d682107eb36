#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "worker/backend/sim/profile.h"
#include "worker/comm/communicator.h"
#include "worker/rank/probe.h"
#include "worker/rank/rank_device.h"

namespace metp {

namespace {

// Products and blocks of attention that take the largest devices some milliseconds.
constexpr ProbeEffort kGpu = {.side = {256, 8192},
                              .rows = {64, 8192},
                              .pointwise = {256, 8192},
                              .heads = 16,
                              .queued = true,
                              .seconds = 10};

constexpr int64_t kLeastCopy = int64_t{1} << 20, kMostCopy = int64_t{256} << 20;
constexpr double kLongCopy = 2e-3;  // seconds
constexpr int kCopies = 5;

/// Median seconds of a copy out and one in, at once, of `bytes` each.
double CopySeconds(Backend& backend, int64_t bytes) {
  const auto make = [&] {
    Tensor x = backend.Allocate(1, bytes / 4, DType::kF32, MemoryCategory::kTransient);
    backend.Fill(x, 0);
    return x;
  };
  HostLink& host = backend.host_link();
  const Tensor out = make(), in = make();
  const HostBlock to = host.Allocate(bytes, MemoryCategory::kTransient),
                  from = host.Allocate(bytes, MemoryCategory::kTransient);
  host.Await(host.CopyOut(out, from, backend.Record()));
  backend.Synchronize();
  std::vector<double> seconds;
  for (int i = 0; i < kCopies; ++i) {
    const Event start = backend.Record();
    const HostTask tasks[] = {host.CopyOut(out, to, start), host.CopyIn(from, in, start)};
    for (const HostTask& task : tasks) host.Await(task);
    const Event end = backend.Record();
    backend.Synchronize();
    seconds.push_back(backend.Seconds(start, end));
  }
  host.TakeTimes();
  std::nth_element(seconds.begin(), seconds.begin() + kCopies / 2, seconds.end());
  return std::max(seconds[kCopies / 2], 1e-9);
}

v1::Link MeasureHostLink(Backend& backend) {
  const double latency = CopySeconds(backend, 4);
  int64_t bytes = kLeastCopy;
  double seconds = CopySeconds(backend, bytes);
  while (bytes < kMostCopy && seconds < kLongCopy) seconds = CopySeconds(backend, bytes *= 2);
  v1::Link link;
  link.set_latency_seconds(latency);
  link.set_bytes_per_second(static_cast<double>(bytes) / std::max(seconds - latency, seconds / 2));
  return link;
}

/// The built-in profile of a product, or "". Products' names say how they are linked, too: those of other builds differ.
std::string BuiltInProfileOf(const std::string& product) {
  static const std::map<std::string, std::string> kProfiles = {{"NVIDIA A100-SXM4-80GB", "a100-80g"},
                                                               {"NVIDIA A800-SXM4-80GB", "a800-80g"},
                                                               {"NVIDIA H100 80GB HBM3", "h100-80g"},
                                                               {"NVIDIA H100 SXM5 96GB", "h100-96g"},
                                                               {"NVIDIA H200", "h200"},
                                                               {"NVIDIA B200", "b200"}};
  const auto found = kProfiles.find(product);
  return found == kProfiles.end() ? "" : found->second;
}

}  // namespace

std::string SetFirstLinks(const std::string& product, v1::DeviceProfile& profile) {
  const std::string name = BuiltInProfileOf(product);
  if (name.empty()) {
    *profile.mutable_link() = profile.host_link();
    return "taken to be like that to host memory";
  }
  const absl::StatusOr<v1::DeviceProfile> built_in = LoadProfile(name);
  ThrowIfError(built_in.status());
  *profile.mutable_link() = built_in->link();
  *profile.mutable_node_link() = built_in->node_link();
  return "those of the built-in profile " + name;
}

v1::DeviceProfile ProbeThisGpu(int gpus, int threads) {
  const absl::StatusOr<std::unique_ptr<RankDevice>> device =
      OpenRankDevice({v1::JobSpec::DEVICE_GPU, v1::DeviceProfile::PRECISION_BF16, threads});
  ThrowIfError(device.status());
  Backend& backend = (*device)->backend();
  const DeviceFacts facts = (*device)->Facts();

  v1::DeviceProfile profile;
  profile.set_name(facts.product);
  profile.set_precision(v1::DeviceProfile::PRECISION_BF16);
  profile.set_memory_bytes(facts.memory_bytes);
  profile.set_reserved_bytes(ReservedBytesOf(facts.memory_bytes));
  SetRates(MeasureDevice(backend, *MakeLocalCommunicators(1).front(), kGpu), profile);
  profile.set_peak_flops_per_second((*device)->MeasureFlops());
  *profile.mutable_host_link() = MeasureHostLink(backend);
  profile.set_host_memory_bytes(MachineMemoryBytes());
  const std::string links = SetFirstLinks(facts.product, profile);
  profile.set_source("one " + facts.product + ", measured by itself; its links to neighbours are " + links);
  profile.set_devices_per_node(gpus);
  NormalizeProfile(profile);
  return profile;
}

}  // namespace metp
