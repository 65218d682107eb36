// Conformance: all-reduce and barrier.

#include <atomic>
#include <cmath>
#include <cstring>
#include <random>

#include "tests/worker/comm/conformance/conformance.h"

namespace metp {
namespace {

class RingCollectives : public Conformance {};
METP_CONFORMANCE(RingCollectives, 1, 2, 3, 4, 5);

template <typename T>
std::vector<T> Random(int rank, int64_t length) {
  std::mt19937 bits(rank * 1000 + static_cast<int>(length));
  std::vector<T> values(length);
  for (T& value : values)
    value = static_cast<T>(std::ldexp(static_cast<double>(bits()) - 2e9, -(int)(bits() % 40)));
  return values;
}

template <typename T>
void ExpectSums(Ring& ring, int64_t length) {
  const int size = static_cast<int>(ring.size());
  std::vector<double> sum(length), magnitude(length);
  for (int rank = 0; rank < size; ++rank) {
    const std::vector<T> values = Random<T>(rank, length);
    for (int64_t i = 0; i < length; ++i) {
      sum[i] += values[i];
      magnitude[i] += std::abs(values[i]);
    }
  }
  std::vector<std::vector<T>> result(size);
  ForEachRank(ring, [&](Communicator& comm) {
    auto& mine = result[comm.rank()] = Random<T>(comm.rank(), length);
    EXPECT_TRUE(comm.AllReduce(Row(mine)).ok());
  });
  for (int rank = 0; rank < size; ++rank) {
    ASSERT_EQ(result[rank].size(), static_cast<size_t>(length));
    if (length > 0) {
      EXPECT_EQ(std::memcmp(result[rank].data(), result[0].data(), length * sizeof(T)), 0)
          << "rank " << rank << " has other bits than rank 0";
    }
  }
  for (int64_t i = 0; i < length; ++i) {
    EXPECT_NEAR(result[0][i], sum[i], magnitude[i] * size * std::numeric_limits<T>::epsilon());
  }
}

TEST_P(RingCollectives, AllReduceSumsToTheSameBitsOnEveryRank) {
  Ring ring = Make();
  ExpectSums<float>(ring, 10'007);
  ExpectSums<double>(ring, 10'007);
}

TEST_P(RingCollectives, AllReduceTakesAnyLengthShorterThanTheRingToo) {
  Ring ring = Make();
  for (int64_t length = 0; length <= size() + 2; ++length) {
    ExpectSums<float>(ring, length);
    ExpectSums<double>(ring, length);
  }
}

TEST_P(RingCollectives, AllReduceRefusesWhatItCannotAdd) {
  Ring ring = Make();
  int32_t ids[4] = {};
  EXPECT_EQ(ring[0]->AllReduce(Matrix{ids, 1, 4, 4, DType::kI32}).code(), absl::StatusCode::kInvalidArgument);
  float rows[4] = {};
  EXPECT_EQ(ring[0]->AllReduce(Matrix{rows, 2, 1, 2, DType::kF32}).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_P(RingCollectives, NobodyLeavesABarrierBeforeAllHaveCome) {
  constexpr int kRounds = 20;
  Ring ring = Make();
  std::atomic<int> come = 0;
  ForEachRank(ring, [&](Communicator& comm) {
    for (int round = 1; round <= kRounds; ++round) {
      ++come;
      EXPECT_TRUE(comm.Barrier().ok());
      EXPECT_GE(come.load(), round * size());
    }
  });
}

TEST_P(RingCollectives, RunBehindTheHopsPostedBeforeAndLeaveNoRecords) {
  Ring ring = Make();
  ForEachRank(ring, [&](Communicator& comm) {
    std::vector<float> out(1000, 1.0f + comm.rank()), in(1000), one(1, 1.0f);
    const HopId hop = comm.Post({{Row(out)}, {Row(in)}}, Event());
    EXPECT_TRUE(comm.AllReduce(Row(one)).ok());
    EXPECT_EQ(in[999], 1.0f + (comm.rank() + size() - 1) % size());
    EXPECT_EQ(one[0], static_cast<float>(size()));
    EXPECT_TRUE(comm.TakeRecords().empty());
    EXPECT_TRUE(comm.Await(hop).ok());
    EXPECT_TRUE(comm.Barrier().ok());
    const std::vector<HopRecord> records = comm.TakeRecords();
    ASSERT_EQ(records.size(), 1u);
    EXPECT_EQ(records[0].hop, hop);
  });
}

}  // namespace
}  // namespace metp
