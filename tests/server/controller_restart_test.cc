// A coordinator that dies at any moment and comes back with its store: jobs go on, nothing is lost and nothing counts
// twice.

#include "tests/server/controller_fixture.h"

namespace metp {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class ControllerRestart : public ControllerTest {
 protected:
  static v1::WorkerEvent Step(int step) {
    v1::WorkerEvent event;
    event.mutable_step()->set_step(step);
    event.mutable_step()->set_loss(1.0 / step);
    event.mutable_step()->set_step_seconds(1);
    event.mutable_step()->set_tokens(10);
    return event;
  }
  absl::Status Report(Worker& worker, const v1::JobStatus& job, int rank, int step) {
    v1::WorkerEvent event = Step(step);
    event.mutable_step()->set_rank(rank);
    return Say(worker, event, job.attempt(), rank);
  }
  static int64_t LastAck(Worker& worker) {
    int64_t last = -1;
    for (const v1::ToWorker& message : worker.link->Take()) {
      if (message.has_ack()) last = message.ack().acknowledged();
      if (message.has_welcome()) last = message.welcome().acknowledged();
    }
    return last;
  }
  /// Two ranks that run.
  v1::JobStatus Running(std::vector<Worker>& workers) {
    const v1::JobStatus job = Submit(2);
    for (int r = 0; r < 2; ++r) EXPECT_THAT(Say(workers[r], Started(), job.attempt(), r), IsOk());
    EXPECT_EQ(State(job.id()), v1::JobStatus::RUNNING);
    return job;
  }
};

TEST_F(ControllerRestart, AJobThatRunsGoesOnAndItsCurveIsWhole) {
  auto workers = Workers(2);
  const v1::JobStatus job = Running(workers);
  for (int r = 0; r < 2; ++r) ASSERT_THAT(Report(workers[r], job, r, 1), IsOk());
  ASSERT_THAT(Report(workers[0], job, 0, 2), IsOk());  // one rank is ahead
  Restart();
  EXPECT_EQ(State(job.id()), v1::JobStatus::RUNNING);
  EXPECT_EQ(jobs_.Get(job.id())->step(), 1);
  EXPECT_THAT(CurveOf(job.id()), ElementsAre(1));

  for (int r = 0; r < 2; ++r) ASSERT_THAT(Connect(workers[r], {{job.attempt(), r}}), IsOk());
  // What was not acknowledged comes again: here everything.
  for (int r = 0; r < 2; ++r) {
    workers[r].sequence = 0;
    ASSERT_THAT(Say(workers[r], Started(), job.attempt(), r), IsOk());
    for (int step = 1; step <= 3; ++step) ASSERT_THAT(Report(workers[r], job, r, step), IsOk());
  }
  EXPECT_EQ(State(job.id()), v1::JobStatus::RUNNING);
  EXPECT_THAT(CurveOf(job.id()), ElementsAre(1, 2, 3));
  EXPECT_EQ(jobs_.Get(job.id())->ranks(0).step(), 3);
  for (int r = 0; r < 2; ++r) ASSERT_THAT(Say(workers[r], Ended(true), job.attempt(), r), IsOk());
  EXPECT_EQ(State(job.id()), v1::JobStatus::SUCCEEDED);
  Restart();
  EXPECT_EQ(State(job.id()), v1::JobStatus::SUCCEEDED);
  EXPECT_THAT(CurveOf(job.id()), ElementsAre(1, 2, 3));
}

TEST_F(ControllerRestart, NothingIsAcknowledgedBeforeItIsWritten) {
  auto workers = Workers(2);
  const v1::JobStatus job = Running(workers);
  LastAck(workers[0]);
  store_.refuse = true;
  EXPECT_THAT(Report(workers[0], job, 0, 1), IsOk());
  EXPECT_EQ(LastAck(workers[0]), 1);  // that it has started was
  ASSERT_TRUE(controller_.NextDeadline().has_value());
  EXPECT_LE(*controller_.NextDeadline(), clock_.Now() + std::chrono::seconds(1));
  store_.refuse = false;
  clock_.Advance(std::chrono::seconds(1));
  v1::FromWorker heartbeat;
  heartbeat.mutable_heartbeat();
  EXPECT_THAT(controller_.Receive(workers[0].session, heartbeat), IsOk());
  controller_.Tick();
  EXPECT_EQ(LastAck(workers[0]), 2);
}

TEST_F(ControllerRestart, AWorkerThatDoesNotComeBackIsLostAfterItsLease) {
  auto workers = Workers(2);
  const v1::JobStatus job = Running(workers);
  Restart();
  ASSERT_THAT(Connect(workers[0], {{job.attempt(), 0}}), IsOk());
  clock_.Advance(config_.lease / 2);
  Alive(workers);
  controller_.Tick();
  EXPECT_FALSE(jobs_.Get(job.id())->stopping());
  clock_.Advance(config_.lease / 2 + std::chrono::seconds(1));
  std::vector<Worker> heard = {workers[0]};
  Alive(heard);
  controller_.Tick();
  EXPECT_TRUE(jobs_.Get(job.id())->stopping());
  EXPECT_THAT(jobs_.Get(job.id())->reason(), HasSubstr("worker cpu-1 is lost"));
}

TEST_F(ControllerRestart, AWorkerThatWasRestartedMeanwhileHasLostItsRank) {
  auto workers = Workers(2);
  const v1::JobStatus job = Running(workers);
  Restart();
  workers[1].incarnation = "second";
  ASSERT_THAT(Connect(workers[1]), IsOk());
  EXPECT_THAT(jobs_.Get(job.id())->reason(), HasSubstr("worker cpu-1 was restarted"));
}

TEST_F(ControllerRestart, ARankThatEndedMeanwhileSaysSo) {
  auto workers = Workers(2);
  const v1::JobStatus job = Running(workers);
  Restart();
  for (int r = 0; r < 2; ++r) {
    ASSERT_THAT(Connect(workers[r], {{job.attempt(), r}}), IsOk());
    ASSERT_THAT(Say(workers[r], Ended(true), job.attempt(), r), IsOk());
  }
  EXPECT_EQ(State(job.id()), v1::JobStatus::SUCCEEDED);
}

TEST_F(ControllerRestart, RanksThatWereFindingEachOtherFindEachOther) {
  auto workers = Workers(2);
  const v1::JobStatus job = Submit(2);
  v1::WorkerEvent put, get;
  put.mutable_put()->set_key("ring/0/1");
  put.mutable_put()->set_value("address of 0");
  get.mutable_get()->set_key("ring/0/1");
  ASSERT_THAT(Say(workers[0], put, job.attempt(), 0), IsOk());
  Restart();
  for (int r = 0; r < 2; ++r) ASSERT_THAT(Connect(workers[r], {{job.attempt(), r}}), IsOk());
  ASSERT_THAT(Say(workers[1], get, job.attempt(), 1), IsOk());
  const auto values = Got(workers[1], v1::ToWorker::kValue);
  ASSERT_THAT(values, SizeIs(1));
  EXPECT_EQ(values[0].value().value().value(), "address of 0");
}

TEST_F(ControllerRestart, ARankWhoseStartWasLostIsToldAgain) {
  auto workers = Workers(1);
  const v1::JobStatus job = Submit(1);
  workers[0].link->Take();
  Restart();
  ASSERT_THAT(Connect(workers[0]), IsOk());
  EXPECT_THAT(Got(workers[0], v1::ToWorker::kStart), SizeIs(1));
}

TEST_F(ControllerRestart, JobsThatWaitAreStartedWhenTheWorkersAreBackAndNumbersGoOn) {
  auto workers = Workers(1);
  Submit(1);
  const v1::JobStatus waits = Submit(1);
  EXPECT_EQ(State(waits.id()), v1::JobStatus::QUEUED);
  Restart();
  EXPECT_EQ(workers_.registered(v1::JobSpec::DEVICE_CPU), 1);  // submissions are planned on it meanwhile
  EXPECT_EQ(State(waits.id()), v1::JobStatus::QUEUED);
  EXPECT_EQ(Submit(1).id(), "job-3");
  const auto again = SubmitJob("request-2", SmallJob("job", 1));
  ASSERT_THAT(again, IsOk());
  EXPECT_EQ(again->id(), waits.id());
}

TEST_F(ControllerRestart, EventsSayWhatHappenedInOrder) {
  auto workers = Workers(2);
  const v1::JobStatus job = Running(workers);
  Restart();
  for (int r = 0; r < 2; ++r) ASSERT_THAT(Connect(workers[r], {{job.attempt(), r}}), IsOk());
  ASSERT_THAT(Say(workers[1], Ended(false, "killed by signal 9 (SIGKILL)"), job.attempt(), 1), IsOk());
  ASSERT_THAT(Say(workers[0], Ended(false, "exited with code 143", true), job.attempt(), 0), IsOk());
  const auto events = jobs_.Events(job.id());
  ASSERT_THAT(events, IsOk());
  std::vector<std::string> texts;
  for (const v1::JobEvent& event : *events) texts.push_back(event.text());
  EXPECT_THAT(texts,
              ElementsAre(HasSubstr("submitted; planned: 2 ranks"), "attempt 1 starts on cpu-0, cpu-1",
                          "all 2 ranks have started", HasSubstr("rank 1 on worker cpu-1: killed by signal 9"),
                          HasSubstr("FAILED: rank 1 on worker cpu-1: killed")));
  EXPECT_EQ(events->at(0).attempt(), "");
  EXPECT_EQ(events->at(1).attempt(), job.id() + "/1");
}

TEST_F(ControllerRestart, AnEndThatTheStoreRefusedIsWrittenLater) {
  auto workers = Workers(2);
  const v1::JobStatus job = Running(workers);
  store_.refuse = true;
  workers[1].incarnation = "second";
  controller_.Disconnected(workers[1].session);
  EXPECT_THAT(Connect(workers[1]),
              StatusIs(absl::StatusCode::kUnavailable));  // it was restarted, its rank is gone
  EXPECT_FALSE(jobs_.Get(job.id())->stopping());
  ASSERT_TRUE(controller_.NextDeadline().has_value());
  EXPECT_LE(*controller_.NextDeadline(), clock_.Now() + std::chrono::seconds(1));
  store_.refuse = false;
  controller_.Tick();
  EXPECT_TRUE(jobs_.Get(job.id())->stopping());
  EXPECT_THAT(jobs_.Get(job.id())->reason(), HasSubstr("worker cpu-1 was restarted"));
}

TEST_F(ControllerRestart, ARankOfAWorkerThatNobodyKnowsAnyMoreIsGone) {
  auto workers = Workers(2);
  const v1::JobStatus job = Running(workers);
  ASSERT_THAT(store_.Write({.workers_gone = {"cpu-1"}}), IsOk());
  Restart();
  EXPECT_TRUE(jobs_.Get(job.id())->stopping());
  EXPECT_THAT(jobs_.Get(job.id())->reason(), HasSubstr("its worker has left"));
}

TEST_F(ControllerRestart, ADaemonThatWasRefusedLeavesNoTrace) {
  auto workers = Workers(1);
  const v1::JobStatus job = Submit(1);
  ASSERT_THAT(Say(workers[0], Started(), job.attempt(), 0), IsOk());
  Worker twin = workers[0];
  twin.incarnation = "another";
  EXPECT_THAT(Connect(twin), StatusIs(absl::StatusCode::kAlreadyExists));
  Restart();
  ASSERT_THAT(Connect(workers[0], {{job.attempt(), 0}}), IsOk());
  EXPECT_EQ(State(job.id()), v1::JobStatus::RUNNING);
}

TEST_F(ControllerRestart, ACancelledJobStaysCancelled) {
  auto workers = Workers(2);
  const v1::JobStatus job = Running(workers);
  ASSERT_THAT(controller_.Cancel(job.id()), IsOk());
  controller_.Tick();
  ASSERT_THAT(Say(workers[0], Ended(false, "exited with code 143", true), job.attempt(), 0), IsOk());
  Restart();
  ASSERT_THAT(Connect(workers[1], {{job.attempt(), 1}}), IsOk());
  ASSERT_THAT(Say(workers[1], Ended(false, "killed by signal 2 (SIGINT)", true), job.attempt(), 1), IsOk());
  EXPECT_EQ(State(job.id()), v1::JobStatus::CANCELLED);
}

TEST_F(ControllerRestart, AWorkerThatLeavesIsForgotten) {
  auto workers = Workers(2);
  v1::FromWorker leave;
  leave.mutable_leave();
  ASSERT_THAT(controller_.Receive(workers[0].session, leave), IsOk());
  controller_.Tick();
  Restart();
  ASSERT_THAT(workers_.List(), SizeIs(1));
  EXPECT_EQ(workers_.List()[0].name(), "cpu-1");
  EXPECT_EQ(workers_.List()[0].state(), v1::WorkerStatus::SUSPECT);
}

}  // namespace
}  // namespace metp
