#pragma once

// What a user would pick instead of METP for the same job, on the same devices. Pure. Modelled from published
// formulas, neither simulated nor measured: say so wherever it is shown. Where a formula leaves a choice open
// the one that is kind to the peer is taken, and named (peer_shape.h, peer_memory.cc, peer_time.cc).

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "metp/v1/job.pb.h"
#include "metp/v1/plan.pb.h"
#include "metp/v1/profile.pb.h"

namespace metp {

/// One method in one of two settings. Without recomputation (`equal_means` false): all that automatic
/// differentiation keeps with FlashAttention, the MLP and the logits whole. At equal means: the plan's
/// recomputation, tile rows and offload (all of whose copies, and the optimizer's work on the host, are taken to hide, as
/// METP's own row does not take them). An exchange between data-parallel groups is not counted.
struct PeerEstimate {
  std::string method;
  bool equal_means = false;
  bool possible = true;
  std::string why_not;                           // one sentence; empty where possible
  int64_t max_sequence = 0;                      // longest that fits, tokens; 0: none
  int64_t peak_bytes = 0;                        // of one device, at the job's own sequence
  std::map<std::string, int64_t> bytes_by_part;  // at that peak; sums to it
  int64_t host_bytes = 0;                        // offloaded, at the job's own sequence
  double step_seconds = 0;                       // of one optimizer step, were the memory there
};

/// All methods x both settings, for the job at its own sequence length on plan.degree() devices of `profile`, and its
/// share of the step where the plan has rings (which spread a peer's optimizer state no further here).
/// `job`: normalized and valid; `profile`: complete and valid.
std::vector<PeerEstimate> ComparePeers(const v1::JobSpec& job, const v1::Plan& plan,
                                       const v1::DeviceProfile& profile);

}  // namespace metp
