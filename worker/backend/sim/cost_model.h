#pragma once

// Seconds of kernels and messages on a device described by a profile. Pure arithmetic, shared by the simulated
// backend and the planner's closed form, so that both use the same rates.
//
// A kernel takes kernel_seconds + flops / F + bytes / B, attention also its exponentials. The sum instead of the roofline's maximum (Williams,
// Waterman, Patterson 2009) is what makes small and narrow shapes slower gradually, as they are.

#include <cstdint>

#include "metp/v1/profile.pb.h"

namespace metp::sim {

class CostModel {
 public:
  /// `profile`: complete and valid.
  explicit CostModel(const v1::DeviceProfile& profile) : profile_(profile) {}

  const v1::DeviceProfile& profile() const { return profile_; }

  /// [m, k] times [k, n]; `bytes`: operands and result.
  double Gemm(int64_t m, int64_t n, int64_t k, double bytes) const {
    return Kernel(profile_.gemm(),
                  2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k), bytes);
  }
  /// `pairs`: (query, key) rows that meet; two products forward, five backward.
  double AttentionForward(int64_t pairs, int heads, int head_dim, double bytes) const {
    return Attention(profile_.attention_forward(), 4, pairs, heads, head_dim, bytes);
  }
  double AttentionBackward(int64_t pairs, int heads, int head_dim, double bytes) const {
    return Attention(profile_.attention_backward(), 10, pairs, heads, head_dim, bytes);
  }
  /// Anything bound by memory; `bytes` read and written.
  double Memory(double bytes) const {
    return profile_.kernel_seconds() + bytes / profile_.bytes_per_second();
  }

 private:
  double Kernel(const v1::KernelRate& rate, double flops, double bytes) const {
    return profile_.kernel_seconds() + flops / rate.flops_per_second() + bytes / rate.bytes_per_second();
  }
  double Attention(const v1::KernelRate& rate, double flops, int64_t pairs, int heads, int head_dim,
                   double bytes) const {
    const double scores = static_cast<double>(pairs) * heads;
    return Kernel(rate, flops * scores * head_dim, bytes) +
           (rate.has_scores_per_second() ? scores / rate.scores_per_second() : 0);
  }
  const v1::DeviceProfile profile_;
};

/// The slowest link of a ring of `ranks`: the node's own while the ring fits into one node.
inline const v1::Link& RingLink(const v1::DeviceProfile& profile, int ranks) {
  return ranks > profile.devices_per_node() ? profile.node_link() : profile.link();
}

/// One message of `bytes`; nothing is sent for none.
inline double MessageSeconds(const v1::Link& link, double bytes) {
  return bytes <= 0 ? 0 : link.latency_seconds() + bytes / link.bytes_per_second();
}

}  // namespace metp::sim
