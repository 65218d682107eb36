// Conformance: what is moved, in which order.

#include <algorithm>
#include <numeric>

#include "tests/worker/comm/conformance/conformance.h"

namespace metp {
namespace {

class RingTransfers : public Conformance {};
METP_CONFORMANCE(RingTransfers, 1, 2, 3, 4, 5);

float Value(int rank, int hop, int transfer, int64_t i) {
  return static_cast<float>(rank * 1'000'003 + hop * 10'007 + transfer * 101 + i % 97);
}

std::vector<float> Payload(int rank, int hop, int transfer, int64_t length) {
  std::vector<float> values(length);
  for (int64_t i = 0; i < length; ++i) values[i] = Value(rank, hop, transfer, i);
  return values;
}

TEST_P(RingTransfers, MoveEverythingToTheNextRankWhateverTheSizes) {
  constexpr int kHops = 12, kTransfers = 4;
  // Sizes differ from rank to rank, hop to hop and transfer to transfer; some are zero.
  const auto length = [](int rank, int hop, int transfer) {
    return (rank * 7 + hop * 13 + transfer * 5) % 23 * 57;
  };
  Ring ring = Make();
  ForEachRank(ring, [&](Communicator& comm) {
    const int before = (comm.rank() + size() - 1) % size();
    std::vector<std::vector<float>> sent(kHops * kTransfers), received(kHops * kTransfers);
    std::vector<HopId> ids;
    for (int hop = 0; hop < kHops; ++hop) {
      Exchange exchange;
      for (int t = 0; t < kTransfers; ++t) {
        auto& out = sent[hop * kTransfers + t] = Payload(comm.rank(), hop, t, length(comm.rank(), hop, t));
        auto& in = received[hop * kTransfers + t];
        in.resize(length(before, hop, t), -1);
        exchange.sends.push_back(Row(out));
        exchange.receives.push_back(Row(in));
      }
      ids.push_back(comm.Post(exchange, Event()));
    }
    for (int hop = 0; hop < kHops; ++hop) {
      EXPECT_EQ(ids[hop], static_cast<HopId>(hop + 1));
      ASSERT_TRUE(comm.Await(ids[hop]).ok());
      for (int t = 0; t < kTransfers; ++t) {
        EXPECT_EQ(received[hop * kTransfers + t], Payload(before, hop, t, length(before, hop, t)));
      }
    }
  });
}

TEST_P(RingTransfers, RunOneAfterTheOtherInTheOrderPosted) {
  // A shard goes all the way round in two slots: each hop sends what the hop before received.
  Ring ring = Make();
  ForEachRank(ring, [&](Communicator& comm) {
    std::vector<float> own = Payload(comm.rank(), 0, 0, 5000);
    std::vector<float> slots[2] = {std::vector<float>(5000), std::vector<float>(5000)};
    HopId last = 0;
    for (int t = 0; t < size(); ++t) {
      last = comm.Post({{t == 0 ? Row(own) : Row(slots[t % 2])}, {Row(slots[(t + 1) % 2])}}, Event());
    }
    ASSERT_TRUE(comm.Await(last).ok());
    EXPECT_EQ(slots[size() % 2], own);
  });
}

TEST_P(RingTransfers, PostNeverWaitsForANeighbour) {
  constexpr int kHops = 50;
  Ring ring = Make();
  Moment posted;
  ForEachRank(ring, [&](Communicator& comm) {
    if (comm.rank() != 0) posted.Await();  // nobody else is there while rank 0 posts
    std::vector<std::vector<float>> sent(kHops, Payload(comm.rank(), 0, 0, 30'000)), received = sent;
    HopId last = 0;
    for (int hop = 0; hop < kHops; ++hop) last = comm.Post({{Row(sent[hop])}, {Row(received[hop])}}, Event());
    if (comm.rank() == 0) posted.Happens();
    EXPECT_TRUE(comm.Await(last).ok());
  });
}

TEST_P(RingTransfers, AnEmptyExchangeIsAHopLikeAnyOther) {
  Ring ring = Make();
  ForEachRank(ring, [&](Communicator& comm) {
    std::vector<float> none, out(3, 1.0f), in(3);
    EXPECT_TRUE(comm.Await(comm.Post({}, Event())).ok());
    EXPECT_TRUE(comm.Await(comm.Post({{Row(none)}, {Row(none)}}, Event())).ok());
    EXPECT_TRUE(comm.Await(comm.Post({{Row(out)}, {Row(in)}}, Event())).ok());
    EXPECT_EQ(in, out);
    EXPECT_EQ(comm.TakeRecords().size(), 3u);
  });
}

TEST_P(RingTransfers, OneRankMaySendWhatNobodyElseDoes) {
  Ring ring = Make();
  ForEachRank(ring, [&](Communicator& comm) {
    std::vector<float> out = Payload(0, 0, 0, 1000), in(1000);
    Exchange exchange;
    if (comm.rank() == 0) exchange.sends.push_back(Row(out));
    if (comm.rank() == 1 % size()) exchange.receives.push_back(Row(in));
    ASSERT_TRUE(comm.Await(comm.Post(exchange, Event())).ok());
    if (comm.rank() == 1 % size()) {
      EXPECT_EQ(in, out);
    }
  });
}

TEST_P(RingTransfers, MoveBigMessages) {
  constexpr int64_t kLength = (64 << 20) / sizeof(float) + 1;
  Ring ring = Make();
  ForEachRank(ring, [&](Communicator& comm) {
    std::vector<float> out(kLength), in(kLength, -1);
    std::iota(out.begin(), out.end(), static_cast<float>(comm.rank()));
    const HopId hop = comm.Post({{Row(out)}, {Row(in)}}, Event());
    ASSERT_TRUE(comm.Await(hop).ok());
    std::iota(out.begin(), out.end(), static_cast<float>((comm.rank() + size() - 1) % size()));
    EXPECT_TRUE(in == out);
    EXPECT_EQ(comm.TakeRecords().at(0).sent_bytes, kLength * static_cast<int64_t>(sizeof(float)));
  });
}

}  // namespace
}  // namespace metp
