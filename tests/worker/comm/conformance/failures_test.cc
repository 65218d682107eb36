// Conformance: how a ring ends.

#include "tests/worker/comm/conformance/conformance.h"

namespace metp {
namespace {

using testing::AnyOf;
using testing::HasSubstr;
using Code = absl::StatusCode;

class RingFailures : public Conformance {};
METP_CONFORMANCE(RingFailures, 2, 3, 5);

TEST_P(RingFailures, AbortFromAnotherThreadEndsAwaitWithItsReason) {
  Ring ring = Make();
  std::vector<float> out(1000), in(1000);
  const HopId hop = ring[0]->Post({{Row(out)}, {Row(in)}}, Event());  // nobody else ever posts
  std::thread other([&] { ring[0]->Abort(absl::CancelledError("the operator said so")); });
  EXPECT_EQ(ring[0]->Await(hop), absl::CancelledError("the operator said so"));
  other.join();
}

TEST_P(RingFailures, TheFirstReasonStaysTheResultOfEveryCall) {
  Ring ring = Make();
  const absl::Status first = absl::CancelledError("first");
  ring[0]->Abort(first);
  ring[0]->Abort(absl::InternalError("second"));
  std::vector<float> values(10);
  const HopId hop = ring[0]->Post({{Row(values)}, {Row(values)}}, Event());
  EXPECT_EQ(ring[0]->Await(hop), first);
  EXPECT_EQ(ring[0]->AllReduce(Row(values)), first);
  EXPECT_EQ(ring[0]->Barrier(), first);
}

TEST_P(RingFailures, AnAbortedRankEndsItsNeighbours) {
  Ring ring = Make();
  std::vector<absl::Status> result(size());
  ForEachRank(ring, [&](Communicator& comm) {
    std::vector<float> out(1000), in(1000);
    if (comm.rank() == 1) {
      comm.Abort(absl::CancelledError("enough"));
      return;
    }
    result[comm.rank()] = comm.Await(comm.Post({{Row(out)}, {Row(in)}}, Event()));
  });
  for (int rank : {0, 2 % size()}) {
    EXPECT_EQ(result[rank].code(), Code::kUnavailable) << result[rank];
    EXPECT_THAT(std::string(result[rank].message()), HasSubstr("rank 1"));
  }
}

TEST_P(RingFailures, AbortEndsACollectiveToo) {
  Ring ring = Make();
  std::vector<float> values(1000);
  std::thread other([&] { ring[0]->Abort(absl::CancelledError("enough")); });
  EXPECT_EQ(ring[0]->AllReduce(Row(values)), absl::CancelledError("enough"));
  EXPECT_EQ(ring[0]->Barrier(), absl::CancelledError("enough"));
  other.join();
}

TEST_P(RingFailures, ADeadlineNamesTheHopAndTheNeighbour) {
  Ring ring = Make({std::chrono::milliseconds(30)});
  std::vector<float> out(1000), in(1000);
  const HopId hop = ring[0]->Post({{Row(out)}, {Row(in)}}, Event());
  const absl::Status status = ring[0]->Await(hop);
  EXPECT_EQ(status.code(), Code::kDeadlineExceeded) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("hop 1"));
  EXPECT_THAT(std::string(status.message()),
              AnyOf(HasSubstr("rank 1"), HasSubstr("rank " + std::to_string(size() - 1))));
}

TEST_P(RingFailures, ADeadlineEndsACollective) {
  Ring ring = Make({std::chrono::milliseconds(30)});
  std::vector<float> values(1000);
  const absl::Status status = ring[0]->AllReduce(Row(values));
  EXPECT_EQ(status.code(), Code::kDeadlineExceeded) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("all-reduce"));
}

TEST_P(RingFailures, SizesThatDisagreeAreFoundAndNotMoved) {
  Ring ring = Make();
  std::vector<absl::Status> result(size());
  ForEachRank(ring, [&](Communicator& comm) {
    std::vector<float> out(comm.rank() == 0 ? 999 : 1000, 7.0f), in(1000, -1.0f);
    result[comm.rank()] = comm.Await(comm.Post({{Row(out)}, {Row(in)}}, Event()));
    if (comm.rank() == 1) {
      EXPECT_EQ(in, std::vector<float>(1000, -1.0f));
    }
  });
  bool named = false;
  for (int rank : {0, 1}) {
    EXPECT_THAT(result[rank].code(), AnyOf(Code::kInvalidArgument, Code::kUnavailable)) << result[rank];
    named |= result[rank].code() == Code::kInvalidArgument;
  }
  EXPECT_TRUE(named);
}

TEST_P(RingFailures, ANeighbourThatLeavesAfterTheLastHopIsNoFailure) {
  Ring ring = Make();
  std::vector<std::vector<float>> in(size(), std::vector<float>(100'000));
  std::vector<std::vector<float>> out(size(), std::vector<float>(100'000, 3.0f));
  std::vector<HopId> hops(size());
  for (int rank = 0; rank < size(); ++rank)
    hops[rank] = ring[rank]->Post({{Row(out[rank])}, {Row(in[rank])}}, Event());
  for (int rank = 0; rank < size(); ++rank) {
    EXPECT_TRUE(ring[rank]->Await(hops[rank]).ok());
    ring[rank].reset();
    EXPECT_EQ(in[rank], out[0]);
  }
}

TEST_P(RingFailures, ANeighbourThatLeftIsNamedByTheHopThatNeedsIt) {
  Ring ring = Make();
  ring[1].reset();
  std::vector<float> values(1000);
  const absl::Status status = ring[0]->Await(ring[0]->Post(Send(Row(values)), Event()));
  EXPECT_EQ(status.code(), Code::kUnavailable) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1"));
}

TEST_P(RingFailures, LeavingWithHopsUnfinishedReturnsAndEndsTheNeighbours) {
  std::vector<std::vector<float>> out(size(), std::vector<float>(1000)), in = out;  // outlive the ring
  Ring ring = Make();
  for (size_t rank = 0; rank < ring.size(); ++rank)
    ring[rank]->Post({{Row(out[rank])}, {Row(in[rank])}}, Event());
  ring[1]->Post({{}, {Row(in[1])}}, Event());  // rank 0 posts its part only when rank 1 is gone
  ring[1].reset();
  // What rank 1 had asked for may still be taken by its side of the connection; what it never asked for and
  // never sent cannot be.
  ring[0]->Post({{Row(out[0])}, {}}, Event());
  const absl::Status behind = ring[0]->Await(ring[0]->Post({{Row(out[0])}, {}}, Event()));
  EXPECT_EQ(behind.code(), Code::kUnavailable) << behind;
  const size_t next = 2 % ring.size();
  const absl::Status ahead = ring[next]->Await(ring[next]->Post({{}, {Row(in[next])}}, Event()));
  EXPECT_EQ(ahead.code(), Code::kUnavailable) << ahead;
}

TEST_P(RingFailures, WhatCannotBePostedIsRefused) {
  Ring ring = Make();
  std::vector<float> values(100);
  EXPECT_EQ(ring[0]->Await(1).code(), Code::kInvalidArgument);
  const HopId hop = ring[0]->Post(Send(Matrix{values.data(), 10, 5, 10, DType::kF32}), Event());
  EXPECT_EQ(ring[0]->Await(hop).code(), Code::kInvalidArgument);

  const HopId behind = ring[1]->Post({}, Event{std::make_shared<int>(1)});
  EXPECT_FALSE(ring[1]->Await(behind).ok());
}

}  // namespace
}  // namespace metp
