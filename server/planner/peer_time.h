#pragma once

// Seconds of a peer's step, at the profile's rates: the ones that METP's simulation uses. Pure.
//
// Assumed of all: the same kernels as METP at the same rates; every device as fast as the others; matrix
// products cost twice forward's FLOPs in backward, attention five products for two. What is made again costs
// its FLOPs again, whatever layer checkpointing would add to that is left out.
//   TP, TP + SP   all-reduces, or all-gathers and reduce-scatters, wait for the computing and it for them;
//                 SP's second all-gather of N, for the weight gradients, hides, as Korthikanti et al. have it
//   Ulysses       all-to-alls likewise; gathers of weights and scatters of gradients hide behind the layer
//   ring          K, V and sums of dK, dV hide behind attention alone, gathers and scatters behind the layer
//   loss          logits once: a tile's gradient is formed where its logits are (METP makes logits twice)
// Collectives run as rings: p - 1 messages of a p-th each; across nodes at the slowest link.

#include "metp/v1/profile.pb.h"
#include "server/planner/peer_shape.h"

namespace metp {

/// One optimizer step of `micro_batches` micro-batches.
double PeerSeconds(const PeerShape& x, int64_t micro_batches, const v1::DeviceProfile& profile);

}  // namespace metp
