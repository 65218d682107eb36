// What attention may keep at once, as the ledger counted it.

#include <gtest/gtest.h>

#include <mutex>

#include "tests/support/local_ranks.h"
#include "worker/ring/attention.h"

namespace metp::testing {
namespace {

struct Peaks {
  int64_t forward = 0, backward = 0;  // bytes under "scores", the largest over ranks
};

/// One attention layer in `tiled` mode without row tiles, one head group per rank.
Peaks TiledAttention(int p, int64_t s, int a, int d) {
  std::mutex mutex;
  Peaks peaks;
  RunLocalRanks(p, [&](int rank, Communicator& communicator) {
    MemoryLedger ledger;
    const auto backend = MakeCpuBackend(1, ledger);
    Ring ring(*backend, communicator);
    AttentionShape shape{a * d, a, a, d, HeadGroups(a, a, p), /*tiled=*/true, 0};
    auto make = [&](int64_t rows, int64_t cols) {
      Tensor tensor = backend->Allocate(rows, cols, DType::kF32, MemoryCategory::kActivations);
      backend->Fill(tensor, 0.01f);
      return tensor;
    };
    TokenRows tokens;
    tokens.split = {s, p};
    tokens.rank = rank;
    tokens.n = tokens.RowsOf(rank);
    tokens.seen = {{0, s}, {0, s}};
    std::vector<int32_t> visible;
    for (int64_t i = 0; i < tokens.n; ++i) visible.insert(visible.end(), {0, static_cast<int32_t>(s)});
    tokens.visible = backend->Allocate(tokens.n, 2, DType::kI32, MemoryCategory::kActivations);
    backend->CopyFromHost(visible.data(), tokens.visible);
    std::vector<Tensor> memory;
    AttentionParameters weights, gradients;
    for (AttentionParameters* to : {&weights, &gradients}) {
      for (const HeadGroup& group : shape.groups) {
        const int64_t rows = Part(shape.h, p, rank).size();
        memory.push_back(make(rows, 3 * group.q.size() * d));
        memory.push_back(make(rows, group.q.size() * d));
        to->groups.push_back({memory[memory.size() - 2], memory.back()});
      }
    }
    const Tensor N = make(tokens.n, shape.h), O = make(tokens.n, shape.h), LSE = make(tokens.n, a);
    const Tensor Y = make(tokens.n, shape.h), dN = make(tokens.n, shape.h);
    AttentionUnit unit(ring, shape, tokens);
    ledger.ResetPeaks();
    unit.Forward(weights, unit.Prefetch(weights), N, O, LSE, Y);
    const int64_t forward = ledger.tag_peak("scores");
    ledger.ResetPeaks();
    unit.Backward(weights, gradients, unit.Prefetch(weights), {N, O, LSE}, Y, dN);
    ring.Drain(Pass::kFinish);
    const int64_t backward = ledger.tag_peak("scores");
    std::lock_guard lock(mutex);
    peaks.forward = std::max(peaks.forward, forward);
    peaks.backward = std::max(peaks.backward, backward);
  });
  return peaks;
}

TEST(AttentionMemory, TiledScoresStayBelowOneOverPCubed) {
  constexpr int64_t s = 128, a = 8, d = 4;
  for (int p : {2, 4, 8}) {
    const int64_t bound = a * s * s / (p * p * p) * 4;  // bytes, b = 1
    const Peaks peaks = TiledAttention(p, s, a, d);
    EXPECT_GT(peaks.forward, 0);
    EXPECT_LE(peaks.forward, bound) << "p " << p;
    EXPECT_LE(peaks.backward, 2 * bound) << "p " << p;
  }
}

TEST(AttentionMemory, TiledScoresFallEightfoldFromTwoRanksToFour) {
  const Peaks two = TiledAttention(2, 128, 8, 4), four = TiledAttention(4, 128, 8, 4);
  for (double ratio :
       {static_cast<double>(two.forward) / four.forward, static_cast<double>(two.backward) / four.backward}) {
    EXPECT_GE(ratio, 7.8);
    EXPECT_LE(ratio, 8.2);
  }
}

}  // namespace
}  // namespace metp::testing
