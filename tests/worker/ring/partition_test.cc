#include "worker/ring/partition.h"

#include <gtest/gtest.h>

#include "worker/ring/schedule.h"

namespace metp {
namespace {

TEST(Partition, PartsCoverEverythingOnceAndDifferByAtMostOne) {
  for (int64_t n : {0, 1, 5, 48, 1000}) {
    for (int parts : {1, 2, 3, 7, 50}) {
      int64_t at = 0;
      for (int i = 0; i < parts; ++i) {
        const Range range = Part(n, parts, i);
        EXPECT_EQ(range.begin, at);
        EXPECT_TRUE(range.size() == n / parts || range.size() == n / parts + 1);
        at = range.end;
      }
      EXPECT_EQ(at, n);
    }
  }
}

TEST(Partition, ZigzagHoldsEveryTokenOnceWhateverTheLength) {
  for (int64_t s : {1, 3, 29, 48, 4096}) {
    for (int p : {1, 2, 3, 5, 8}) {
      std::vector<int> held(s);
      for (int rank = 0; rank < p; ++rank) {
        for (Range chunk : Zigzag{s, p}.Chunks(rank)) {
          for (int64_t i = chunk.begin; i < chunk.end; ++i) ++held[i];
        }
      }
      EXPECT_EQ(held, std::vector<int>(s, 1)) << s << " " << p;
    }
  }
}

TEST(Partition, CausalPairsAreThoseThatTheMaskLeaves) {
  for (Range q : {Range{0, 7}, Range{3, 4}, Range{5, 12}, Range{9, 9}}) {
    for (Range k : {Range{0, 7}, Range{3, 4}, Range{4, 6}, Range{8, 20}, Range{2, 2}}) {
      int64_t pairs = 0;
      for (int64_t i = q.begin; i < q.end; ++i) {
        for (int64_t j = k.begin; j < k.end; ++j) pairs += j <= i;
      }
      EXPECT_EQ(CausalPairs(q, k), pairs) << q.begin << " " << q.end << " " << k.begin << " " << k.end;
    }
  }
}

TEST(Partition, ZigzagGivesEveryRankTheSameCausalWork) {
  const Zigzag split{64, 4};
  std::vector<int64_t> work;
  for (int rank = 0; rank < 4; ++rank) {
    int64_t pairs = 0;
    for (Range chunk : split.Chunks(rank)) {
      for (int64_t i = chunk.begin; i < chunk.end; ++i) pairs += i + 1;
    }
    work.push_back(pairs);
  }
  EXPECT_EQ(work, std::vector<int64_t>(4, work[0]));
}

TEST(Partition, HeadGroupsNeverSplitAKeyValueHead) {
  const auto groups = HeadGroups(12, 3, 2);
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].kv, (Range{0, 2}));
  EXPECT_EQ(groups[0].q, (Range{0, 8}));
  EXPECT_EQ(groups[1].q, (Range{8, 12}));
  EXPECT_EQ(HeadGroups(12, 3, 9).size(), 3u);
}

TEST(Schedule, EveryRankHoldsEveryShardOnce) {
  for (int p : {1, 2, 3, 5}) {
    for (int r = 0; r < p; ++r) {
      std::vector<int> held(p);
      for (int t = 0; t < p; ++t) ++held[HeldShard(r, t, p)];
      EXPECT_EQ(held, std::vector<int>(p, 1));
    }
  }
}

TEST(Schedule, WhatARankReceivesIsWhatItsNeighbourSends) {
  for (int p : {2, 3, 5}) {
    for (int r = 0; r < p; ++r) {
      const int previous = Mod(r - 1, p);
      for (int t = 0; t < p - 1; ++t) {
        EXPECT_EQ(HeldShard(r, t + 1, p), HeldShard(previous, t, p));
        EXPECT_EQ(GatherReceives(r, t, p), GatherSends(previous, t, p));
        EXPECT_EQ(ScatterReceives(r, t, p), ScatterSends(previous, t, p));
      }
      EXPECT_EQ(ScatterReceives(r, p - 2, p), r);
    }
  }
}

}  // namespace
}  // namespace metp
