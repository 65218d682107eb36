#include "server/planner/peers.h"

#include "absl/strings/str_cat.h"
#include "server/planner/peer_memory.h"
#include "server/planner/peer_shape.h"
#include "server/planner/peer_time.h"
#include "server/planner/planner.h"
#include "worker/backend/sim/profile.h"
#include "worker/model/plan.h"

namespace metp {

namespace {

constexpr struct {
  Peer peer;
  const char* name;
} kMethods[] = {{Peer::kTensor, "TP"},
                {Peer::kTensorSequence, "TP + sequence parallelism"},
                {Peer::kUlysses, "Ulysses + ZeRO-3"},
                {Peer::kUlyssesChunks, "Ulysses by head chunks + FSDP"},
                {Peer::kRing, "ring context parallelism + FSDP"}};

/// Why the method cannot cut this model over p devices; empty where it can.
std::string WhyNot(const PeerShape& x) {
  if (!x.by_heads()) return "";  // the ring asks nothing of heads
  if (x.p > x.c.a) {
    return absl::StrCat("each device needs a query head of its own, and there are ", x.c.a, " for ", x.p,
                        " devices.");
  }
  if (x.c.a % x.p != 0) return absl::StrCat(x.c.a, " query heads do not divide among ", x.p, " devices.");
  if (x.c.g % x.p != 0 && x.p % x.c.g != 0) {
    return absl::StrCat(x.c.g, " key/value heads neither divide among ", x.p,
                        " devices nor can each be copied to equally many.");
  }
  return "";
}

/// `profile`'s host memory: one device's share.
bool Fits(const PeerShape& x, const v1::DeviceProfile& profile) {
  return SumOf(PeerMemory(x, profile.workspace_bytes())) <= UsableBytes(profile) &&
         PeerHostMemory(x) <= profile.host_memory_bytes();
}

/// By bisection: memory never falls as the sequence grows.
int64_t LongestThatFits(Peer peer, const PeerMeans& means, const v1::JobSpec& job, int degree,
                        const v1::DeviceProfile& profile) {
  int64_t fit = 0, beyond = kMostTokens + 1;
  while (beyond - fit > 1) {
    const int64_t middle = fit + (beyond - fit) / 2;
    const PeerShape x(peer, means, WithSequence(job, middle), degree, profile);
    (Fits(x, profile) ? fit : beyond) = middle;
  }
  return fit;
}

PeerEstimate Estimate(Peer peer, const char* name, const PeerMeans& means, const v1::JobSpec& job,
                      const v1::Plan& plan, v1::DeviceProfile profile) {
  const int degree = plan.degree();
  profile.set_host_memory_bytes(ShareOfHost(profile, RanksOf(plan)).memory_bytes);
  PeerEstimate estimate;
  estimate.method = name;
  estimate.equal_means = means.equal;
  const PeerShape x(peer, means, job, degree, profile);
  estimate.why_not = WhyNot(x);
  estimate.possible = estimate.why_not.empty();
  if (!estimate.possible) return estimate;
  estimate.bytes_by_part = PeerMemory(x, profile.workspace_bytes());
  estimate.peak_bytes = SumOf(estimate.bytes_by_part);
  estimate.host_bytes = PeerHostMemory(x);
  estimate.max_sequence = LongestThatFits(peer, means, job, degree, profile);
  estimate.step_seconds = PeerSeconds(x, job.train().sequences_per_step() / x.b, profile);
  return estimate;
}

}  // namespace

std::vector<PeerEstimate> ComparePeers(const v1::JobSpec& job, const v1::Plan& plan,
                                       const v1::DeviceProfile& profile) {
  const PeerMeans as_planned{true, plan.recompute(), plan.tile_rows(), plan.offload_activations(),
                             plan.offload_optimizer()};
  v1::JobSpec of_a_ring =
      job;  // beside data-parallel rings each peer has as many groups, and a group's share
  of_a_ring.mutable_train()->set_sequences_per_step(job.train().sequences_per_step() / RingsOf(plan));
  std::vector<PeerEstimate> estimates;
  for (const auto& [peer, name] : kMethods) {
    for (const PeerMeans& means : {PeerMeans{}, as_planned})
      estimates.push_back(Estimate(peer, name, means, of_a_ring, plan, profile));
  }
  return estimates;
}

}  // namespace metp
