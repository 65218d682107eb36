// Traces of jobs: who is told to trace, and when there is enough.

#include "proto/support/common_steps.h"
#include "tests/server/controller_fixture.h"

namespace metp {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class TraceTest : public ControllerTest {
 protected:
  /// A job that runs on all of these.
  std::string Running(std::vector<Worker>& workers) {
    const std::string id = Submit(static_cast<int>(workers.size())).id();
    for (size_t rank = 0; rank < workers.size(); ++rank)
      EXPECT_THAT(Say(workers[rank], Started(), id + "/1", static_cast<int>(rank)), IsOk());
    EXPECT_EQ(State(id), v1::JobStatus::RUNNING);
    for (Worker& worker : workers) worker.link->Take();
    return id;
  }
  std::shared_ptr<TraceSession> Trace(const std::string& id, int steps = 2) {
    auto session = std::make_shared<TraceSession>(changes_, id, steps);
    controller_.Trace(id, session);
    controller_.Tick();
    return session;
  }
  /// Whole steps of a rank.
  void Traced(Worker& worker, const std::string& id, int rank, int first, int last) {
    for (int step = first; step <= last; ++step) {
      v1::WorkerEvent event;
      event.mutable_trace()->set_rank(rank);
      event.mutable_trace()->set_step(step);
      event.mutable_trace()->add_spans()->set_track("step");
      event.mutable_trace()->set_last(true);
      EXPECT_THAT(Say(worker, event, id + "/1", rank), IsOk());
    }
  }
  /// Everything that the session has; the status of its end, if it has come.
  static std::pair<std::vector<v1::TracePart>, std::optional<absl::Status>> All(TraceSession& session,
                                                                                size_t max_bytes = 1 << 20) {
    std::vector<v1::TracePart> parts;
    while (true) {
      v1::TraceChunk chunk;
      absl::Status status;
      const TraceSession::Taken taken = session.Take(max_bytes, chunk, status);
      if (taken == TraceSession::Taken::kEnd) return {parts, status};
      if (taken == TraceSession::Taken::kNothingYet) return {parts, std::nullopt};
      parts.insert(parts.end(), chunk.parts().begin(), chunk.parts().end());
    }
  }
};

TEST_F(TraceTest, EndsWhenAllRanksHaveSentEnoughStepsInCommon) {
  auto workers = Workers(2);
  const std::string id = Running(workers);
  const auto session = Trace(id);
  for (int rank = 0; rank < 2; ++rank) {
    const auto orders = Got(workers[rank], v1::ToWorker::kTrace);
    ASSERT_THAT(orders, SizeIs(1));
    EXPECT_EQ(orders[0].trace().attempt(), id + "/1");
    EXPECT_EQ(orders[0].trace().rank(), rank);
    EXPECT_EQ(orders[0].trace().order().steps(), 2);
  }
  Traced(workers[0], id, 0, 5, 9);
  Traced(workers[1], id, 1, 7, 7);
  EXPECT_THAT(All(*session), ::testing::Pair(SizeIs(6), ::testing::Eq(std::nullopt)));
  Traced(workers[1], id, 1, 8, 11);  // the last ones are not needed any more
  const auto [parts, end] = All(*session);
  EXPECT_THAT(parts, SizeIs(1));
  ASSERT_TRUE(end.has_value());
  EXPECT_THAT(*end, IsOk());
  const auto again = Trace(id);  // the next may come
  EXPECT_EQ(All(*again).second, std::nullopt);
}

TEST_F(TraceTest, OrdersMoreWhereRanksHadTooFewInCommon) {
  auto workers = Workers(2);
  const std::string id = Running(workers);
  const auto session = Trace(id);
  for (Worker& worker : workers) worker.link->Take();
  const int all = 2 + kMoreTracedSteps;
  Traced(workers[0], id, 0, 1, all);
  EXPECT_THAT(Got(workers[0], v1::ToWorker::kTrace), IsEmpty());
  Traced(workers[1], id, 1, 100, 99 + all);  // was told much later
  for (Worker& worker : workers) {
    const auto orders = Got(worker, v1::ToWorker::kTrace);
    ASSERT_THAT(orders, SizeIs(1));
    EXPECT_GT(orders[0].trace().order().steps(), 2);
  }
  Traced(workers[0], id, 0, 200, 202);
  Traced(workers[1], id, 1, 201, 202);
  EXPECT_EQ(All(*session).second, absl::OkStatus());
}

TEST_F(TraceTest, IsOfARunningJobAndOneAtATime) {
  auto workers = Workers(2);
  const std::string starting = Submit(2).id();
  EXPECT_THAT(*All(*Trace(starting)).second,
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("found STARTING, expected RUNNING")));
  for (int rank = 0; rank < 2; ++rank)
    ASSERT_THAT(Say(workers[rank], Started(), starting + "/1", rank), IsOk());
  auto session = Trace(starting);
  EXPECT_THAT(*All(*Trace(starting)).second,
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("is being traced already")));
  session.reset();  // its client has gone
  session = Trace(starting);
  EXPECT_EQ(All(*session).second, std::nullopt);
  EXPECT_THAT(*All(*Trace("nobody")).second, StatusIs(absl::StatusCode::kNotFound, HasSubstr("nobody")));
}

TEST_F(TraceTest, EndsWithItsAttempt) {
  auto workers = Workers(2);
  const std::string id = Running(workers);
  const auto session = Trace(id);
  Traced(workers[0], id, 0, 5, 6);
  for (int rank = 0; rank < 2; ++rank) ASSERT_THAT(Say(workers[rank], Ended(true), id + "/1", rank), IsOk());
  const auto [parts, end] = All(*session);
  EXPECT_THAT(parts, SizeIs(2));
  EXPECT_THAT(*end, StatusIs(absl::StatusCode::kFailedPrecondition,
                             AllOf(HasSubstr(id + "/1 has ended"), HasSubstr("2 whole steps"))));
}

TEST_F(TraceTest, TellsAWorkerThatHasNotHeard) {
  auto workers = Workers(2);
  const std::string id = Running(workers);
  controller_.Disconnected(workers[1].session);
  const auto session = Trace(id);
  ASSERT_THAT(Connect(workers[1], {{id + "/1", 1}}), IsOk());
  EXPECT_THAT(Got(workers[1], v1::ToWorker::kTrace), SizeIs(1));
}

TEST_F(TraceTest, PartsOfNoTraceAreTakenAndForgotten) {
  auto workers = Workers(1);
  const std::string id = Running(workers);
  Traced(workers[0], id, 0, 1, 3);
  auto session = Trace(id);
  session.reset();
  Traced(workers[0], id, 0, 4, 5);
}

TEST_F(TraceTest, StopsRanksThatTraceForNobody) {
  auto workers = Workers(2);
  const std::string id = Running(workers);
  const auto orders = [&](int rank) {
    std::vector<int> steps;
    for (const v1::ToWorker& message : Got(workers[rank], v1::ToWorker::kTrace)) {
      EXPECT_EQ(message.trace().attempt(), id + "/1");
      EXPECT_EQ(message.trace().rank(), rank);
      steps.push_back(message.trace().order().steps());
    }
    workers[rank].link->Take();
    return steps;
  };
  auto session = Trace(id);
  EXPECT_THAT(orders(0), ElementsAre(2));
  EXPECT_THAT(orders(1), ElementsAre(2));
  session.reset();  // its client has gone, or waits no longer
  Traced(workers[0], id, 0, 1, 1);
  EXPECT_THAT(orders(0), ElementsAre(0));
  EXPECT_THAT(orders(1), ElementsAre(0));
  Traced(workers[1], id, 1, 1, 1);  // had not heard
  EXPECT_THAT(orders(0), IsEmpty());
  EXPECT_THAT(orders(1), ElementsAre(0));

  session = Trace(id, 1);
  EXPECT_THAT(orders(0), ElementsAre(1));
  EXPECT_THAT(orders(1), ElementsAre(1));
  for (int rank = 0; rank < 2; ++rank) Traced(workers[rank], id, rank, 2, 2);
  EXPECT_EQ(All(*session).second, absl::OkStatus());
  for (int rank = 0; rank < 2; ++rank) EXPECT_THAT(orders(rank), ElementsAre(0));  // it has all that it wants
}

TEST_F(TraceTest, ComesInChunksOfTheAskedSize) {
  auto workers = Workers(1);
  const std::string id = Running(workers);
  const auto session = Trace(id, 3);
  Traced(workers[0], id, 0, 1, 3);
  for (int i = 1; i <= 3; ++i) {
    v1::TraceChunk chunk;
    absl::Status status;
    ASSERT_EQ(session->Take(1, chunk, status), TraceSession::Taken::kChunk);
    ASSERT_EQ(chunk.parts_size(), 1);
    EXPECT_EQ(chunk.parts(0).step(), i);
  }
  EXPECT_EQ(All(*session).second, absl::OkStatus());
}

}  // namespace
}  // namespace metp
