#include "server/common_profile.h"

#include <algorithm>
#include <map>
#include <string>

namespace metp {
namespace {

void Slower(const v1::Link& other, v1::Link& link) {
  link.set_bytes_per_second(std::min(link.bytes_per_second(), other.bytes_per_second()));
  link.set_latency_seconds(std::max(link.latency_seconds(), other.latency_seconds()));
}

void Slower(const v1::KernelRate& other, v1::KernelRate& rate) {
  rate.set_flops_per_second(std::min(rate.flops_per_second(), other.flops_per_second()));
  rate.set_bytes_per_second(std::min(rate.bytes_per_second(), other.bytes_per_second()));
  if (!other.has_scores_per_second()) return;
  rate.set_scores_per_second(rate.has_scores_per_second()
                                 ? std::min(rate.scores_per_second(), other.scores_per_second())
                                 : other.scores_per_second());
}

void Slower(const v1::DeviceProfile& other, v1::DeviceProfile& profile) {
  if (other.precision() == v1::DeviceProfile::PRECISION_FP32) profile.set_precision(other.precision());
  profile.set_one_memory(profile.one_memory() || other.one_memory());
  // What is left of memory counts, not how it is made up.
  profile.set_memory_bytes(std::min(profile.memory_bytes() - profile.reserved_bytes(),
                                    other.memory_bytes() - other.reserved_bytes()));
  profile.set_reserved_bytes(0);
  profile.set_workspace_bytes(std::max(profile.workspace_bytes(), other.workspace_bytes()));
  profile.set_bytes_per_second(std::min(profile.bytes_per_second(), other.bytes_per_second()));
  profile.set_kernel_seconds(std::max(profile.kernel_seconds(), other.kernel_seconds()));
  Slower(other.gemm(), *profile.mutable_gemm());
  Slower(other.attention_forward(), *profile.mutable_attention_forward());
  Slower(other.attention_backward(), *profile.mutable_attention_backward());
  Slower(other.link(), *profile.mutable_link());
  if (profile.has_node_link() && other.has_node_link()) {
    Slower(other.node_link(), *profile.mutable_node_link());
  } else if (other.has_node_link()) {
    *profile.mutable_node_link() = other.node_link();
  }
  Slower(other.host_link(), *profile.mutable_host_link());
  profile.set_host_memory_bytes(std::min(profile.host_memory_bytes(), other.host_memory_bytes()));
  profile.set_host_bytes_per_second(std::min(profile.host_bytes_per_second(), other.host_bytes_per_second()));
  profile.set_peak_flops_per_second(std::min(profile.peak_flops_per_second(), other.peak_flops_per_second()));
}

}  // namespace

std::optional<v1::DeviceProfile> CommonProfile(const std::vector<v1::WorkerStatus>& workers) {
  std::optional<v1::DeviceProfile> common;
  std::map<std::string, int> on_node;
  int most = 1;
  for (const v1::WorkerStatus& worker : workers) {
    if (worker.state() == v1::WorkerStatus::LOST || !worker.has_profile()) continue;
    most = std::max(most, ++on_node[worker.node()]);
    if (!common) common = worker.profile();
    Slower(worker.profile(), *common);
  }
  if (!common) return std::nullopt;
  common->set_name("worker");
  common->set_source("the slowest of each figure over the workers' profiles");
  common->set_devices_per_node(most);
  return common;
}

}  // namespace metp
