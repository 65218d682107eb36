// Communicators for device memory: what is moved, what it is said to have cost, sums. Linked with the emulated device where
// there is no GPU, and into metp_gpu_tests for where there is one. How such a ring ends is in device_failures_test.cc, on
// the emulated device only.

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <future>
#include <random>

#include "tests/worker/comm/device_ring.h"

namespace metp {
namespace {

using testing::IsEmpty;

class CudaRing : public OnRing {};
INSTANTIATE_TEST_SUITE_P(All, CudaRing,
                         testing::Combine(testing::Values(Wire::kLocal, Wire::kNccl),
                                          testing::Values(1, 2, 3, 4)),
                         RingName);

std::vector<float> Pattern(int rank, int hop, int transfer, int64_t length) {
  std::vector<float> values(length);
  for (int64_t i = 0; i < length; ++i)
    values[i] = static_cast<float>(rank * 1'000'003 + hop * 10'007 + transfer * 101 + i % 97);
  return values;
}

TEST_P(CudaRing, MovesEverythingToTheNextRankWhateverTheSizes) {
  constexpr int kHops = 6, kTransfers = 3;
  const auto length = [](int rank, int hop, int transfer) {  // some are zero
    return (rank * 7 + hop * 13 + transfer * 5) % 11 * 57;
  };
  RunRing(wire(), size(), [&](DeviceRank& rank) {
    const int me = rank.communicator->rank(), before = (me + size() - 1) % size();
    std::vector<Tensor> sent, received;
    std::vector<HopId> hops;
    for (int hop = 0; hop < kHops; ++hop) {
      Exchange exchange;
      for (int t = 0; t < kTransfers; ++t) {
        sent.push_back(rank.ToDevice(Pattern(me, hop, t, length(me, hop, t))));
        received.push_back(
            rank.backend->Allocate(1, length(before, hop, t), DType::kF32, MemoryCategory::kRing));
        exchange.sends.push_back(sent.back());
        exchange.receives.push_back(received.back());
      }
      hops.push_back(rank.communicator->Post(exchange, rank.backend->Record()));
    }
    for (int hop = 0; hop < kHops; ++hop) {
      EXPECT_EQ(hops[hop], static_cast<HopId>(hop + 1));
      ASSERT_TRUE(rank.communicator->Await(hops[hop]).ok());
      for (int t = 0; t < kTransfers; ++t)
        EXPECT_EQ(rank.ToHost(received[hop * kTransfers + t]),
                  Pattern(before, hop, t, length(before, hop, t)));
    }
  });
}

TEST_P(CudaRing, OverlapsHopsWithComputeInTwoSlots) {
  // A pass: each hop sends what the hop before received while the compute stream adds it up.
  constexpr int64_t kLength = 1000;
  RunRing(wire(), size(), [&](DeviceRank& rank) {
    const int me = rank.communicator->rank();
    Tensor slots[2] = {rank.ToDevice(Pattern(me, 0, 0, kLength)), rank.ToDevice(Pattern(0, 0, 0, kLength))};
    const Tensor sum = rank.backend->Allocate(1, kLength, DType::kF32, MemoryCategory::kTransient);
    rank.backend->Fill(sum, 0);
    for (int t = 0; t < size(); ++t) {
      const HopId hop =
          rank.communicator->Post({{slots[t % 2]}, {slots[(t + 1) % 2]}}, rank.backend->Record());
      rank.backend->Add(slots[t % 2], sum);
      ASSERT_TRUE(rank.communicator->Await(hop).ok());
    }
    std::vector<float> expected(kLength);
    for (int r = 0; r < size(); ++r) {
      const std::vector<float> part = Pattern((me - r + size()) % size(), 0, 0, kLength);
      for (int64_t i = 0; i < kLength; ++i) expected[i] += part[i];
    }
    EXPECT_EQ(rank.ToHost(sum), expected);
    EXPECT_EQ(rank.ToHost(slots[size() % 2]), Pattern(me, 0, 0, kLength));
  });
}

TEST_P(CudaRing, PostDoesNotWaitForTheNeighbours) {
  constexpr int kHops = 20;
  std::promise<void> posted;
  std::shared_future<void> others = posted.get_future().share();
  RunRing(wire(), size(), [&](DeviceRank& rank) {
    if (rank.communicator->rank() != 0) others.wait();
    const Tensor out = rank.ToDevice(Pattern(0, 0, 0, 500)), in = rank.ToDevice(Pattern(1, 0, 0, 500));
    HopId last = 0;
    for (int hop = 0; hop < kHops; ++hop)
      last = rank.communicator->Post({{out}, {in}}, rank.backend->Record());
    if (rank.communicator->rank() == 0) posted.set_value();
    ASSERT_TRUE(rank.communicator->Await(last).ok());
    EXPECT_EQ(rank.ToHost(in), Pattern(0, 0, 0, 500));
    for (int hop = 1; hop < kHops; ++hop) EXPECT_TRUE(rank.communicator->Await(hop).ok());
  });
}

TEST_P(CudaRing, OneRankMaySendWhatNobodyElseDoes) {
  RunRing(wire(), size(), [&](DeviceRank& rank) {
    const int me = rank.communicator->rank();
    const Tensor out = rank.ToDevice(Pattern(0, 0, 0, 100)), in = rank.ToDevice(Pattern(9, 0, 0, 100));
    Exchange exchange;
    if (me == 0) exchange.sends.push_back(out);
    if (me == 1 % size()) exchange.receives.push_back(in);
    ASSERT_TRUE(rank.communicator->Await(rank.communicator->Post(exchange, rank.backend->Record())).ok());
    ASSERT_TRUE(rank.communicator->Await(rank.communicator->Post({}, rank.backend->Record())).ok());
    EXPECT_EQ(rank.ToHost(in), Pattern(me == 1 % size() ? 0 : 9, 0, 0, 100));
  });
}

TEST_P(CudaRing, RecordsComeOncePerHopAwaitedAndWithinBounds) {
  RunRing(wire(), size(), [&](DeviceRank& rank) {
    const Tensor out = rank.ToDevice(Pattern(0, 0, 0, 5000)), in = rank.ToDevice(Pattern(1, 0, 0, 5000));
    for (int round = 0; round < 3; ++round) {
      const Event start = rank.backend->Record();
      HopId first = 0;
      for (int i = 0; i < 3; ++i) {
        const HopId hop = rank.communicator->Post({{out}, {in}}, rank.backend->Record());
        if (i == 0) first = hop;
      }
      for (HopId hop : {first + 2, first, first + 1, first}) ASSERT_TRUE(rank.communicator->Await(hop).ok());
      const Event end = rank.backend->Record();
      rank.backend->Synchronize();
      const double all = rank.backend->Seconds(start, end) + 1e-5;
      const std::vector<HopRecord> records = rank.communicator->TakeRecords();
      ASSERT_EQ(records.size(), 3u);
      EXPECT_EQ(records[0].hop, first + 2);
      EXPECT_EQ(records[1].hop, first);
      EXPECT_EQ(records[2].hop, first + 1);
      for (const HopRecord& record : records) {
        EXPECT_EQ(record.sent_bytes, 20'000);
        EXPECT_GE(record.communication, 0);
        EXPECT_LE(record.communication, all);
        EXPECT_GE(record.exposed, 0);
        EXPECT_GE(record.skew, 0);
        EXPECT_LE(record.exposed + record.skew, all);
      }
      EXPECT_EQ(records[1].exposed + records[1].skew, 0) << "it was done when the third hop was";
      EXPECT_THAT(rank.communicator->TakeRecords(), IsEmpty());
    }
  });
}

TEST_P(CudaRing, ANeighbourThatComesLateIsSkewAndNotCommunication) {
  if (size() == 1) return;
  constexpr double kLate = 0.2;
  RunRing(wire(), size(), [&](DeviceRank& rank) {
    const Tensor out = rank.ToDevice(Pattern(0, 0, 0, 10)), in = rank.ToDevice(Pattern(1, 0, 0, 10));
    ASSERT_TRUE(rank.communicator->Barrier().ok());
    const bool late = rank.communicator->rank() == 1;
    if (late) std::this_thread::sleep_for(std::chrono::duration<double>(kLate));
    ASSERT_TRUE(rank.Move({out}, {in}).ok());
    rank.backend->Synchronize();
    const std::vector<HopRecord> records = rank.communicator->TakeRecords();
    ASSERT_EQ(records.size(), 1u);
    const bool beside = rank.communicator->rank() == 0 || rank.communicator->rank() == 2;
    if (beside) {
      EXPECT_GT(records[0].skew, kLate / 2);
    }
    if (beside || late) {
      EXPECT_LT(records[0].communication, kLate / 2);
    }
  });
}

template <typename T>
std::vector<T> Random(int rank, int64_t length) {
  std::mt19937 bits(rank * 1000 + static_cast<int>(length));
  std::vector<T> values(length);
  for (T& value : values)
    value = static_cast<T>(std::ldexp(static_cast<double>(bits()) - 2e9, -static_cast<int>(bits() % 40)));
  return values;
}

template <typename T>
void ExpectSums(Wire wire, int size, int64_t length, bool from_host) {
  constexpr DType kType = sizeof(T) == 8 ? DType::kF64 : DType::kF32;
  std::vector<double> sum(length), magnitude(length);
  for (int rank = 0; rank < size; ++rank) {
    const std::vector<T> values = Random<T>(rank, length);
    for (int64_t i = 0; i < length; ++i) {
      sum[i] += values[i];
      magnitude[i] += std::abs(values[i]);
    }
  }
  std::vector<std::vector<T>> result(size);
  RunRing(wire, size, [&](DeviceRank& rank) {
    std::vector<T>& mine = result[rank.communicator->rank()] = Random<T>(rank.communicator->rank(), length);
    const Matrix host{mine.data(), 1, length, length, kType};
    if (from_host) {
      EXPECT_TRUE(rank.communicator->AllReduce(host).ok());
      return;
    }
    const Tensor values = rank.backend->Allocate(1, length, kType, MemoryCategory::kTransient);
    rank.backend->CopyFromHost(mine.data(), values);
    EXPECT_TRUE(rank.communicator->AllReduce(values).ok());
    rank.backend->CopyToHost(values, mine.data());
  });
  for (int rank = 0; rank < size; ++rank)
    EXPECT_EQ(std::memcmp(result[rank].data(), result[0].data(), length * sizeof(T)), 0) << rank;
  for (int64_t i = 0; i < length; ++i)
    EXPECT_NEAR(result[0][i], sum[i], magnitude[i] * size * std::numeric_limits<T>::epsilon());
}

TEST_P(CudaRing, AllReduceSumsToTheSameBitsOnEveryRankFromDeviceAndHost) {
  for (bool from_host : {false, true}) {
    ExpectSums<float>(wire(), size(), 1003, from_host);
    ExpectSums<double>(wire(), size(), 1003, from_host);
    ExpectSums<double>(wire(), size(), 2, from_host);
  }
}

TEST_P(CudaRing, AllReduceRefusesWhatItCannotAdd) {
  RunRing(wire(), size(), [&](DeviceRank& rank) {
    const Tensor ids = rank.backend->Allocate(4, 4, DType::kI32, MemoryCategory::kTransient);
    EXPECT_EQ(rank.communicator->AllReduce(ids).code(), absl::StatusCode::kInvalidArgument);
    const Tensor values = rank.backend->Allocate(4, 4, DType::kF32, MemoryCategory::kTransient);
    EXPECT_EQ(rank.communicator->AllReduce(values->Cols(0, 2)).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_TRUE(rank.communicator->AllReduce(values->Rows(0, 0)).ok());
  });
}

TEST_P(CudaRing, SumsRunBehindTheHopsAndTheComputePostedBefore) {
  RunRing(wire(), size(), [&](DeviceRank& rank) {
    const Tensor out = rank.ToDevice(Pattern(0, 0, 0, 1000)), in = rank.ToDevice(Pattern(1, 0, 0, 1000));
    const Tensor one = rank.backend->Allocate(1, 1, DType::kF32, MemoryCategory::kTransient);
    const HopId hop = rank.communicator->Post({{out}, {in}}, rank.backend->Record());
    rank.backend->Fill(one, 1);
    EXPECT_TRUE(rank.communicator->AllReduce(one).ok());
    EXPECT_EQ(rank.ToHost(one)[0], static_cast<float>(size()));
    EXPECT_THAT(rank.communicator->TakeRecords(), IsEmpty());
    EXPECT_TRUE(rank.communicator->Await(hop).ok());
    EXPECT_EQ(rank.ToHost(in), Pattern(0, 0, 0, 1000));
    EXPECT_EQ(rank.communicator->TakeRecords().size(), 1u);
  });
}

class CudaLoopback : public testing::Test {
 protected:
  void SetUp() override { PrepareDevices(); }
};

TEST_F(CudaLoopback, ReceivesWhatItSendsAsFarAsItFitsAndZerosBeyond) {
  DeviceRank rank(0);
  rank.communicator = MakeLoopbackCommunicator(*rank.backend, 2, 8, 0);
  EXPECT_EQ(rank.communicator->rank(), 2);
  EXPECT_EQ(rank.communicator->size(), 8);
  const Tensor a = rank.ToDevice({1, 2, 3}), b = rank.ToDevice({4, 5, 6}), c = rank.ToDevice({9, 9, 9, 9}),
               d = rank.ToDevice({9, 9}), e = rank.ToDevice({9, 9});
  ASSERT_TRUE(rank.Move({a, b}, {c, d, e}).ok());
  EXPECT_EQ(rank.ToHost(c), (std::vector<float>{1, 2, 3, 0}));
  EXPECT_EQ(rank.ToHost(d), (std::vector<float>{4, 5}));
  EXPECT_EQ(rank.ToHost(e), (std::vector<float>{0, 0}));
  EXPECT_TRUE(rank.communicator->AllReduce(a).ok());
  EXPECT_TRUE(rank.communicator->Barrier().ok());
  EXPECT_EQ(rank.ToHost(a), (std::vector<float>{1, 2, 3}));
}

TEST_F(CudaLoopback, TakesTheTimeOfTheLinkItStandsFor) {
  DeviceRank rank(0);
  rank.communicator = MakeLoopbackCommunicator(*rank.backend, 0, 8, 4e6);
  const Tensor out = rank.ToDevice(std::vector<float>(100'000)), in = rank.ToDevice(std::vector<float>(10));
  ASSERT_TRUE(rank.Move({out}, {in}).ok());
  ASSERT_TRUE(rank.Move({out->Cols(0, 10)}, {in}).ok());
  rank.backend->Synchronize();
  const std::vector<HopRecord> records = rank.communicator->TakeRecords();
  ASSERT_EQ(records.size(), 2u);
  EXPECT_GE(records[0].communication, 0.099);
  EXPECT_GE(records[0].exposed, 0.09);
  EXPECT_EQ(records[0].skew, 0);
  EXPECT_LT(records[1].communication, 0.05);
}

}  // namespace
}  // namespace metp
