#pragma once

// Bytes of a peer on one device. Pure.

#include <cstdint>
#include <map>
#include <string>

#include "server/planner/peer_shape.h"

namespace metp {

/// The fullest moment of a step, by part: state, gathered (weights and gradients that are whole for a while),
/// kept (activations of all layers), one of loss, mlp, attention, embedding (what that is at work with), and
/// workspace.
std::map<std::string, int64_t> PeerMemory(const PeerShape& x, int64_t workspace_bytes);

/// What layers keep in host memory, all but the last; 0 without offload.
int64_t PeerHostMemory(const PeerShape& x);

/// Their sum.
int64_t SumOf(const std::map<std::string, int64_t>& bytes_by_part);

}  // namespace metp
