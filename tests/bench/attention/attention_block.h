#pragma once

// One attention block, forward and backward, as METP and as tensor parallelism run it on p ranks, through the same
// backend and ledger: causal, fused blocks, no biases, rotary positions or dropout. What is compared is memory.

#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include "worker/backend/backend.h"
#include "worker/comm/communicator.h"

namespace metp {

struct BlockShape {
  int64_t s = 0;  // tokens of the one sequence
  int a = 32, d = 4;
  int64_t h() const { return int64_t{a} * d; }
};

/// Element (i, j) of matrix `which`: small, and the same for whoever asks.
inline float ValueOf(int which, int64_t i, int64_t j) {
  const auto x = static_cast<uint32_t>(i * 7919 + j * 104729 + which * 15485863);
  return static_cast<float>((x * 2654435761u >> 8) % 2001) / 1000.0f - 1.0f;
}
enum Values { kInput, kOutputGradient, kWq, kWk, kWv, kWo };

/// Rows [first, first + rows) and columns [column, column + cols) of matrix `which`, uploaded.
Tensor Upload(Backend& backend, MemoryCategory category, Values which, int64_t first, int64_t rows,
              int64_t column, int64_t cols);

struct BlockResult {
  int64_t peak_bytes = 0;    // of the fullest rank, weights and their gradients apart
  std::vector<float> Y, dX;  // [s, h]
};

/// rank(communicator, result, mutex) on a thread for each of p ranks; `mutex` guards the result that they share.
BlockResult OnRanks(int p, const std::function<void(Communicator&, BlockResult&, std::mutex&)>& rank);

/// X and Y whole on every rank, heads in shares (Shoeybi et al. 2019). `sequence_parallel`: X and Y in shares between
/// blocks, gathered before and reduce-scattered after (Korthikanti et al. 2022).
BlockResult TensorParallel(const BlockShape& shape, int p, bool sequence_parallel);

}  // namespace metp
