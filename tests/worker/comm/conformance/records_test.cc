// Conformance: what a hop is said to have cost.

#include <cmath>
#include <numeric>

#include "tests/worker/comm/conformance/conformance.h"

namespace metp {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kRounding = 1e-6;  // of times as seconds since the machine was started

double Seconds(Clock::duration d) { return std::chrono::duration<double>(d).count(); }

/// Some milliseconds of arithmetic.
double Work() {
  double sum = 0;
  for (int i = 1; i < 3'000'000; ++i) sum += std::sqrt(static_cast<double>(i));
  return sum;
}

class RingRecords : public Conformance {};
METP_CONFORMANCE(RingRecords, 1, 2, 3, 5);

TEST_P(RingRecords, ComeOncePerHopInTheOrderAwaited) {
  Ring ring = Make();
  ForEachRank(ring, [&](Communicator& comm) {
    std::vector<float> out(100 + comm.rank()), in(100 + (comm.rank() + size() - 1) % size());
    for (int i = 0; i < 3; ++i) comm.Post({{Row(out)}, {Row(in)}}, Event());
    for (HopId hop : {3, 1, 2, 1}) EXPECT_TRUE(comm.Await(hop).ok());
    const std::vector<HopRecord> records = comm.TakeRecords();
    ASSERT_EQ(records.size(), 3u);
    EXPECT_EQ(records[0].hop, 3u);
    EXPECT_EQ(records[1].hop, 1u);
    EXPECT_EQ(records[2].hop, 2u);
    for (const HopRecord& record : records) {
      EXPECT_EQ(record.sent_bytes, static_cast<int64_t>(4 * out.size()));
      EXPECT_GE(record.communication, 0);
    }
    EXPECT_EQ(records[1].exposed + records[1].skew, 0) << "hop 1 was done when hop 3 was";
    EXPECT_TRUE(comm.TakeRecords().empty());
  });
}

TEST_P(RingRecords, NeverCountMoreWaitingThanThereWas) {
  Ring ring = Make();
  ForEachRank(ring, [&](Communicator& comm) {
    std::vector<float> out(1 << 20), in(1 << 20);
    for (int i = 0; i < 10; ++i) {
      const Clock::time_point posted = Clock::now();
      const HopId hop = comm.Post({{Row(out)}, {Row(in)}}, Event());
      const Clock::time_point before = Clock::now();
      ASSERT_TRUE(comm.Await(hop).ok());
      const Clock::time_point after = Clock::now();
      const HopRecord record = comm.TakeRecords().at(0);
      EXPECT_GE(record.exposed, 0);
      EXPECT_GE(record.skew, 0);
      EXPECT_LE(record.exposed + record.skew, Seconds(after - before) * (1 + 1e-9));
      EXPECT_GT(record.communication, 0);
      EXPECT_LE(record.communication, Seconds(after - posted));
      const auto on_clock = [](Clock::time_point time) { return Seconds(time.time_since_epoch()); };
      EXPECT_GE(record.start, on_clock(posted));
      EXPECT_LE(record.start + record.communication, on_clock(after) + kRounding);
      if (record.exposed + record.skew == 0) continue;
      EXPECT_GE(record.stood, on_clock(before));
      EXPECT_LE(record.stood + record.skew + record.exposed, on_clock(after) + kRounding);
      // Exposed is what follows the skew, and ends with the hop.
      EXPECT_LE(record.stood + record.skew, record.start + record.communication + kRounding);
    }
  });
}

class RingSkew : public Conformance {};
METP_CONFORMANCE(RingSkew, 3);

TEST_P(RingSkew, IsTheTimeForWhichANeighbourWasNotThere) {
  // Rank 0 waits in Await for rank 2, which works before it posts. Rank 1 takes what rank 0 sends and thereby
  // shows that rank 0's communication stream has come to the hop.
  Ring ring = Make();
  std::vector<float> out(1000, 1.0f), in0(1000), in1(1000), out2(1000, 2.0f);
  Moment rank0_has_started;
  Clock::time_point started, late;
  double worked = 0;
  std::thread rank1([&] {
    ASSERT_TRUE(ring[1]->Await(ring[1]->Post(Receive(Row(in1)), Event())).ok());
    started = Clock::now();
    rank0_has_started.Happens();
  });
  std::thread rank2([&] {
    rank0_has_started.Await();
    worked = Work();
    late = Clock::now();
    ASSERT_TRUE(ring[2]->Await(ring[2]->Post(Send(Row(out2)), Event())).ok());
  });
  const HopId hop = ring[0]->Post({{Row(out)}, {Row(in0)}}, Event());
  const Clock::time_point before = Clock::now();
  ASSERT_TRUE(ring[0]->Await(hop).ok());
  const double stood = Seconds(Clock::now() - before);
  rank1.join();
  rank2.join();
  ASSERT_GT(worked, 0);
  const HopRecord record = ring[0]->TakeRecords().at(0);
  // What Await did not count it spent before it began to wait, or after.
  const double uncounted = stood - record.exposed - record.skew;
  ASSERT_GE(uncounted, 0);
  const double delay = std::min(Seconds(late - started), Seconds(late - before) - uncounted);
  EXPECT_GT(Seconds(late - started), 1e-4);
  EXPECT_GE(record.skew, delay);
  EXPECT_LE(record.exposed, stood - delay);
  EXPECT_LE(record.communication, stood - delay);
  EXPECT_EQ(in0[0], 2.0f);
}

TEST_P(RingSkew, OfAnEarlierHopIsNotCalledExposedInALaterOne) {
  // As above, but rank 0 awaits only the second of two hops.
  Ring ring = Make();
  std::vector<float> out(1000, 1.0f), in(1000), in1(1000), out2(1000, 2.0f);
  Moment rank0_has_started;
  Clock::time_point started, late;
  std::thread rank1([&] {
    ASSERT_TRUE(ring[1]->Await(ring[1]->Post(Receive(Row(in1)), Event())).ok());
    started = Clock::now();
    rank0_has_started.Happens();
    ASSERT_TRUE(ring[1]->Await(ring[1]->Post({}, Event())).ok());
  });
  std::thread rank2([&] {
    rank0_has_started.Await();
    EXPECT_GT(Work(), 0);
    late = Clock::now();
    ring[2]->Post(Send(Row(out2)), Event());
    ASSERT_TRUE(ring[2]->Await(ring[2]->Post({{}, {}}, Event())).ok());
  });
  ring[0]->Post({{Row(out)}, {Row(in)}}, Event());
  const HopId second = ring[0]->Post({}, Event());
  const Clock::time_point before = Clock::now();
  ASSERT_TRUE(ring[0]->Await(second).ok());
  const double stood = Seconds(Clock::now() - before);
  rank1.join();
  rank2.join();
  const HopRecord record = ring[0]->TakeRecords().at(0);
  const double uncounted = stood - record.exposed - record.skew;
  EXPECT_GE(record.skew, std::min(Seconds(late - started), Seconds(late - before) - uncounted));
}

}  // namespace
}  // namespace metp
