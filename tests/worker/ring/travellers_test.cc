// What travels arrives: shards, accumulators, gathered weights and scattered gradients, with shards of
// unequal size, over a real ring of threads. (Under thread sanitizer this is also the proof that the ring's
// waits order real memory.)

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/local_ranks.h"
#include "worker/ring/accumulators.h"
#include "worker/ring/gather.h"
#include "worker/ring/slots.h"

namespace metp::testing {
namespace {

/// A rank of the ring with the CPU backend, and small matrices of known content.
struct Rank {
  explicit Rank(Communicator& communicator)
      : backend(MakeCpuBackend(1, ledger)), ring(*backend, communicator) {}

  Tensor Make(int64_t rows, int64_t cols, const std::function<float(int64_t, int64_t)>& value) {
    std::vector<float> host;
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < cols; ++j) host.push_back(value(i, j));
    }
    Tensor tensor = backend->Allocate(rows, cols, DType::kF32, MemoryCategory::kTransient);
    backend->CopyFromHost(host.data(), tensor);
    return tensor;
  }
  std::vector<float> Read(const Matrix& x) {
    std::vector<float> host(x.size());
    backend->CopyToHost(x, host.data());
    return host;
  }

  MemoryLedger ledger;
  std::unique_ptr<Backend> backend;
  Ring ring;
};

std::vector<float> Repeat(int64_t n, float value) { return std::vector<float>(n, value); }

TEST(TravellingShards, VisitEveryRankOnce) {
  for (int p : {1, 2, 3, 4, 5}) {
    for (auto use : {TravellingShards::Home::kKeep, TravellingShards::Home::kReuse}) {
      RunLocalRanks(p, [&](int rank, Communicator& communicator) {
        Rank me(communicator);
        const std::vector<int64_t> sizes = PartSizes(2 * p + 1, p, 3);
        const Tensor home = me.Make(1, sizes[0], [&](int64_t, int64_t) { return rank; });
        auto shards = std::make_shared<TravellingShards>(me.ring, home, use, sizes);
        me.ring.Board(shards);
        std::vector<int> seen(p);
        for (int t = 0; t < p; ++t) {
          me.ring.Step(Pass::kMlpForward, [&] {
            ++seen[shards->shard()];
            EXPECT_EQ(me.Read(shards->current()), Repeat(sizes[shards->shard()], shards->shard()));
          });
        }
        EXPECT_EQ(seen, std::vector<int>(p, 1));
        if (use == TravellingShards::Home::kKeep) {
          EXPECT_EQ(me.Read(home), Repeat(sizes[0], rank));
        }
      });
    }
  }
}

TEST(TravellingAccumulators, BringEveryRanksContributionHomeAndKeepWhatWasThere) {
  for (int p : {1, 2, 3, 4, 5}) {
    for (int64_t units : {int64_t{2} * p, int64_t{2} * p + 1}) {  // equal and unequal shards
      RunLocalRanks(p, [&](int rank, Communicator& communicator) {
        Rank me(communicator);
        const std::vector<int64_t> sizes = PartSizes(units, p, 3);
        const Tensor home = me.Make(1, sizes[rank], [&](int64_t, int64_t) { return 1000; });
        auto sums = std::make_shared<TravellingAccumulators>(me.ring, home, sizes);
        me.ring.Board(sums);
        for (int t = 0; t < p; ++t) {
          me.ring.Step(Pass::kMlpBackward, [&] {
            const Matrix to = sums->contribution();
            const int shard = HeldShard(rank, t, p);
            ASSERT_EQ(to.size(), sizes[shard]);
            const Tensor mine =
                me.Make(1, to.size(), [&](int64_t, int64_t) { return std::pow(2.0f, rank) * (shard + 1); });
            if (sums->beta() == 0) me.backend->Fill(to, 0);
            me.backend->Add(mine, to);
          });
        }
        me.ring.Drain(Pass::kFinish);
        EXPECT_EQ(me.Read(home), Repeat(sizes[rank], 1000 + (std::pow(2.0f, p) - 1) * (rank + 1)));
      });
    }
  }
}

TEST(WeightGather, BringsEveryPieceToEveryRank) {
  for (int p : {1, 2, 3, 4}) {
    const int64_t h = 2 * p + 1;
    RunLocalRanks(p, [&](int rank, Communicator& communicator) {
      Rank me(communicator);
      const Range rows = Part(h, p, rank);
      const Tensor qkv =
          me.Make(rows.size(), 3, [&](int64_t i, int64_t j) { return 10 * (rows.begin + i) + j; });
      const Tensor out_t =
          me.Make(rows.size(), 2, [&](int64_t i, int64_t j) { return -10 * (rows.begin + i) - j; });
      auto gather = std::make_shared<WeightGather>(me.ring, GroupShard{qkv, out_t}, h);
      me.ring.Board(gather);
      me.ring.Finish(Pass::kFinish, *gather);
      std::vector<float> expected, expected_t;
      for (int64_t i = 0; i < h; ++i) {
        for (int j = 0; j < 3; ++j) expected.push_back(10 * i + j);
        for (int j = 0; j < 2; ++j) expected_t.push_back(-10 * i - j);
      }
      EXPECT_EQ(me.Read(gather->qkv()), expected);
      EXPECT_EQ(me.Read(gather->out_t()), expected_t);
    });
  }
}

TEST(GradientScatter, AddsTheSumOverRanksToTheOwnersPiece) {
  for (int p : {1, 2, 3, 4}) {
    const int64_t h = 2 * p + 1;
    RunLocalRanks(p, [&](int rank, Communicator& communicator) {
      Rank me(communicator);
      const Range rows = Part(h, p, rank);
      const Tensor qkv = me.Make(rows.size(), 3, [](int64_t, int64_t) { return 5; });
      const Tensor out_t = me.Make(rows.size(), 2, [](int64_t, int64_t) { return 7; });
      auto scatter = std::make_shared<GradientScatter>(me.ring, GroupShard{qkv, out_t}, h);
      const Tensor partial = me.Make(h, 3, [&](int64_t i, int64_t) { return std::pow(2.0f, rank) * i; });
      const Tensor partial_t = me.Make(h, 2, [&](int64_t i, int64_t) { return -std::pow(2.0f, rank) * i; });
      for (auto [from, to] : {std::pair<const Matrix&, const Matrix&>(partial, scatter->qkv()),
                              std::pair<const Matrix&, const Matrix&>(partial_t, scatter->out_t())}) {
        if (scatter->beta() == 0) me.backend->Fill(to, 0);
        me.backend->Add(from, to);
      }
      me.ring.Board(scatter);
      me.ring.Drain(Pass::kFinish);
      const float ranks = std::pow(2.0f, p) - 1;
      for (int64_t i = 0; i < rows.size(); ++i) {
        EXPECT_EQ(me.Read(qkv.view().Rows(i, i + 1)), Repeat(3, 5 + ranks * (rows.begin + i)));
        EXPECT_EQ(me.Read(out_t.view().Rows(i, i + 1)), Repeat(2, 7 - ranks * (rows.begin + i)));
      }
    });
  }
}

TEST(Ring, ABrokenRingEndsTheStepWithTheFirstReason) {
  auto communicators = MakeLocalCommunicators(2);
  Rank me(*communicators[0]);
  const Tensor home = me.Make(1, 4, [](int64_t, int64_t) { return 1; });
  me.ring.Board(std::make_shared<TravellingShards>(me.ring, home, TravellingShards::Home::kKeep,
                                                   std::vector<int64_t>{4, 4}));
  communicators[0]->Abort(absl::DataLossError("the reason"));
  try {
    me.ring.Step(Pass::kMlpForward, [] {});
    FAIL() << "the step went through";
  } catch (const StepError& error) {
    EXPECT_EQ(error.status().code(), absl::StatusCode::kDataLoss);
  }
}

}  // namespace
}  // namespace metp::testing
