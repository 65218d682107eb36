// The permutations are fixed for ever: a resumed run must find the sequences that it left.

#include "worker/data/order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <vector>

namespace metp {
namespace {

using ::testing::ElementsAre;

// Computed by a second implementation of the algorithm in order.h, in another language with integers of any
// size.
TEST(EpochOrder, IsTheOneThatItsAlgorithmDefines) {
  EXPECT_THAT(EpochOrder(10, 1, 0), ElementsAre(6, 4, 7, 2, 9, 1, 5, 0, 8, 3));
  EXPECT_THAT(EpochOrder(10, 1, 1), ElementsAre(7, 6, 9, 3, 4, 0, 1, 8, 2, 5));
  EXPECT_THAT(EpochOrder(10, 2, 0), ElementsAre(2, 1, 7, 8, 4, 5, 9, 6, 0, 3));
  EXPECT_THAT(EpochOrder(16, std::numeric_limits<int64_t>::max(), 5),
              ElementsAre(10, 14, 11, 12, 15, 5, 7, 8, 13, 1, 0, 3, 4, 9, 6, 2));
}

TEST(EpochOrder, IsAPermutationForEveryCount) {
  for (int64_t count = 1; count < 200; ++count) {
    std::vector<int64_t> order = EpochOrder(count, 3, count);
    std::sort(order.begin(), order.end());
    for (int64_t i = 0; i < count; ++i) {
      ASSERT_EQ(order[static_cast<size_t>(i)], i);
    }
  }
}

TEST(EpochOrder, PrefersNoPermutation) {
  std::map<std::vector<int64_t>, int> counts;
  constexpr int kEpochs = 24000;
  for (int64_t epoch = 0; epoch < kEpochs; ++epoch) {
    ++counts[EpochOrder(4, 1, epoch)];
  }
  ASSERT_EQ(counts.size(), 24u);
  double chi_squared =
      0;  // 23 degrees of freedom: beyond 50 once in a thousand seeds, and this seed is fixed
  for (const auto& [order, count] : counts) {
    chi_squared += (count - kEpochs / 24.0) * (count - kEpochs / 24.0) / (kEpochs / 24.0);
  }
  EXPECT_LT(chi_squared, 50);
}

TEST(SequenceOrder, CountsOnThroughTheEpochs) {
  const SequenceOrder order(7, 5);
  for (const int64_t epoch : {0, 1, 0, 3, 2, 1000, 1}) {
    const std::vector<int64_t> expected = EpochOrder(7, 5, epoch);
    for (int64_t i = 0; i < 7; ++i) {
      ASSERT_EQ(order.At(epoch * 7 + i), expected[static_cast<size_t>(i)]) << epoch;
    }
  }
}

}  // namespace
}  // namespace metp
