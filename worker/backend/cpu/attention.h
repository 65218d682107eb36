#pragma once

// The two ways to compute a block of attention, behind CpuBackend's attention operations. Both are exact.
// Owned by CpuBackend, called from the rank's compute thread, spread over its team.

#include <cstdint>

#include "worker/backend/backend.h"

namespace metp::cpu {

/// Threads and their scratch: `floats` for each, one after the other.
struct Team {
  int threads;
  float* scratch;
  int64_t floats;
  float* Scratch(int thread) const { return scratch + thread * floats; }
};

/// Fused: one tile of scores per thread exists at a time, in its scratch.
void FlashForward(const Team& team, const AttentionBlock& block, const Matrix& o, const Matrix& lse);
void FlashBackward(const Team& team, const AttentionBlock& block, const Matrix& d_o, const Matrix& lse,
                   const Matrix& delta, const Matrix& dq, const Matrix& dk, const Matrix& dv);

/// Materialised: the scores of all heads stand in block.scores, one product per head.
void TiledForward(const Team& team, const AttentionBlock& block, const Matrix& o, const Matrix& lse);
void TiledBackward(const Team& team, const AttentionBlock& block, const Matrix& d_o, const Matrix& lse,
                   const Matrix& delta, const Matrix& dq, const Matrix& dk, const Matrix& dv);

}  // namespace metp::cpu
