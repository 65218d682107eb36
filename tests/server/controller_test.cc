#include "tests/server/controller_fixture.h"

namespace metp {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST_F(ControllerTest, RunsAJobFromSubmitToSuccess) {
  auto workers = Workers(2);
  const v1::JobStatus job = Submit(2);
  EXPECT_EQ(job.state(), v1::JobStatus::STARTING);
  for (int r = 0; r < 2; ++r) {
    const auto starts = Got(workers[r], v1::ToWorker::kStart);
    ASSERT_THAT(starts, SizeIs(1));
    EXPECT_EQ(starts[0].start().start().rank(), r);
    EXPECT_EQ(starts[0].start().start().attempt(), job.attempt());
    EXPECT_EQ(starts[0].start().start().plan().degree(), 2);
    EXPECT_EQ(starts[0].start().start().job().model().kv_heads(), 2);  // normalized
    ASSERT_THAT(Say(workers[r], Started(), job.attempt(), r), IsOk());
  }
  EXPECT_EQ(State(job.id()), v1::JobStatus::RUNNING);
  for (int r = 0; r < 2; ++r) ASSERT_THAT(Say(workers[r], Ended(true), job.attempt(), r), IsOk());
  EXPECT_EQ(State(job.id()), v1::JobStatus::SUCCEEDED);
}

TEST_F(ControllerTest, SubmitsOnceHoweverOftenItIsAsked) {
  Workers(1);
  const auto first = SubmitJob("r", SmallJob("a", 1)), again = SubmitJob("r", SmallJob("a", 1));
  ASSERT_THAT(again, IsOk());
  EXPECT_EQ(first->id(), again->id());
  EXPECT_THAT(jobs_.Snapshot(), SizeIs(1));
  EXPECT_THAT(SubmitJob("r", SmallJob("b", 1)), StatusIs(absl::StatusCode::kAlreadyExists));
}

TEST_F(ControllerTest, RefusesAJobThatBreaksARule) {
  Workers(1);
  v1::JobSpec job = SmallJob("a", 1);
  job.mutable_train()->set_steps(0);
  EXPECT_THAT(SubmitJob("r", job), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("train.steps")));
}

TEST_F(ControllerTest, StartsTheNextJobOnlyWhenTheProcessesAreGone) {
  auto workers = Workers(2);
  const v1::JobStatus first = Submit(2), second = Submit(2);
  EXPECT_EQ(second.state(), v1::JobStatus::QUEUED);
  EXPECT_EQ(second.reason(), "needs 2 workers, 0 of 2 are free");
  ASSERT_THAT(Say(workers[0], Ended(false, "killed by signal 9 (SIGKILL)"), first.attempt(), 0), IsOk());
  EXPECT_THAT(Got(workers[1], v1::ToWorker::kStop), SizeIs(1));
  EXPECT_EQ(State(second.id()), v1::JobStatus::QUEUED);
  ASSERT_THAT(Say(workers[1], Ended(false, "killed by signal 15 (SIGTERM)", true), first.attempt(), 1),
              IsOk());
  EXPECT_EQ(State(first.id()), v1::JobStatus::FAILED);
  EXPECT_EQ(jobs_.Get(first.id())->reason(), "rank 0 on worker cpu-0: killed by signal 9 (SIGKILL)");
  EXPECT_EQ(State(second.id()), v1::JobStatus::STARTING);
}

TEST_F(ControllerTest, CancelsWhenTheProcessesAreGone) {
  auto workers = Workers(1);
  const v1::JobStatus job = Submit(1);
  ASSERT_THAT(controller_.Cancel("job"), IsOk());
  controller_.Tick();
  ASSERT_THAT(Got(workers[0], v1::ToWorker::kStop), SizeIs(1));
  EXPECT_EQ(State(job.id()), v1::JobStatus::STARTING);
  ASSERT_THAT(Say(workers[0], Ended(false, "killed by signal 15 (SIGTERM)", true), job.attempt(), 0), IsOk());
  EXPECT_EQ(State(job.id()), v1::JobStatus::CANCELLED);
  EXPECT_THAT(controller_.Cancel("nobody"), StatusIs(absl::StatusCode::kNotFound, HasSubstr("nobody")));
}

TEST_F(ControllerTest, CarriesTheRendezvousBetweenWorkers) {
  auto workers = Workers(2);
  const v1::JobStatus job = Submit(2);
  v1::WorkerEvent get, put;
  get.mutable_get()->set_key("address/0");
  put.mutable_put()->set_key("address/0");
  put.mutable_put()->set_value(std::string("\0\xFF", 2));
  ASSERT_THAT(Say(workers[1], get, job.attempt(), 1), IsOk());
  EXPECT_THAT(Got(workers[1], v1::ToWorker::kValue), IsEmpty());
  ASSERT_THAT(Say(workers[0], put, job.attempt(), 0), IsOk());
  const auto values = Got(workers[1], v1::ToWorker::kValue);
  ASSERT_THAT(values, SizeIs(1));
  EXPECT_EQ(values[0].value().rank(), 1);
  EXPECT_EQ(values[0].value().value().value(), std::string("\0\xFF", 2));
  ASSERT_THAT(Say(workers[1], get, job.attempt(), 1), IsOk());
  EXPECT_THAT(Got(workers[1], v1::ToWorker::kValue), SizeIs(1));
}

TEST_F(ControllerTest, FailsAJobWhoseWorkerIsLostAndStopsTheRest) {
  auto workers = Workers(2);
  const v1::JobStatus job = Submit(2);
  std::vector<Worker> rest = {workers[1]};
  for (int i = 0; i < 11; ++i) {
    clock_.Advance(std::chrono::seconds(1));
    Alive(rest);
    controller_.Tick();
  }
  EXPECT_TRUE(jobs_.Get(job.id())->stopping());
  ASSERT_THAT(Say(workers[1], Ended(false, "killed by signal 15 (SIGTERM)", true), job.attempt(), 1), IsOk());
  EXPECT_EQ(State(job.id()), v1::JobStatus::FAILED);
  EXPECT_THAT(jobs_.Get(job.id())->reason(), HasSubstr("worker cpu-0 is lost: not heard for 11 s"));
}

TEST_F(ControllerTest, KillsTheRanksOfALostWorkerWhenItIsBackAndGivesItNoneBefore) {
  auto workers = Workers(2);
  const v1::JobStatus job = Submit(1);
  clock_.Advance(config_.lease + std::chrono::milliseconds(1));
  std::vector<Worker> other = {workers[1]};  // the job could run there: its rank is not waited for
  Alive(other);
  controller_.Tick();
  EXPECT_EQ(State(job.id()), v1::JobStatus::FAILED);
  v1::FromWorker heartbeat;
  heartbeat.mutable_heartbeat();
  EXPECT_THAT(controller_.Receive(workers[0].session, heartbeat),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  ASSERT_THAT(Connect(workers[0], {{job.attempt(), 0}}), IsOk());
  EXPECT_THAT(Got(workers[0], v1::ToWorker::kStop), SizeIs(1));
  const v1::JobStatus next = Submit(2);
  EXPECT_EQ(next.state(), v1::JobStatus::QUEUED);
  ASSERT_THAT(Say(workers[0], Ended(false, "", true), job.attempt(), 0), IsOk());
  EXPECT_EQ(State(next.id()), v1::JobStatus::STARTING);
  EXPECT_EQ(State(job.id()), v1::JobStatus::FAILED);
}

TEST_F(ControllerTest, StopsARankOfAStaleAttemptThatReports) {
  auto workers = Workers(1);
  ASSERT_THAT(Say(workers[0], Started(), "gone-7/1", 0), IsOk());
  EXPECT_THAT(Got(workers[0], v1::ToWorker::kStop), SizeIs(1));
  ASSERT_THAT(Say(workers[0], Started(), "gone-7/1", 0), IsOk());
  EXPECT_THAT(Got(workers[0], v1::ToWorker::kStop), IsEmpty());  // told once
}

TEST_F(ControllerTest, StartsARankAgainWhoseCommandWasLostWithTheSession) {
  auto workers = Workers(1);
  const v1::JobStatus job = Submit(1);
  controller_.Disconnected(workers[0].session);
  ASSERT_THAT(Connect(workers[0]), IsOk());
  EXPECT_THAT(Got(workers[0], v1::ToWorker::kStart), SizeIs(1));
  EXPECT_EQ(State(job.id()), v1::JobStatus::STARTING);
}

TEST_F(ControllerTest, LeavesRanksAloneThatSurviveABrokenSession) {
  auto workers = Workers(1);
  const v1::JobStatus job = Submit(1);
  ASSERT_THAT(Say(workers[0], Started(), job.attempt(), 0), IsOk());
  controller_.Disconnected(workers[0].session);
  ASSERT_THAT(Connect(workers[0], {{job.attempt(), 0}}), IsOk());
  const auto messages = workers[0].link->Take();
  ASSERT_THAT(messages, SizeIs(1));
  EXPECT_EQ(messages[0].welcome().acknowledged(), 1);
  ASSERT_THAT(Say(workers[0], Ended(true), job.attempt(), 0), IsOk());
  EXPECT_EQ(State(job.id()), v1::JobStatus::SUCCEEDED);
}

TEST_F(ControllerTest, FailsAJobWhoseRunningRankIsThereNoMore) {
  auto workers = Workers(1);
  const v1::JobStatus job = Submit(1);
  ASSERT_THAT(Say(workers[0], Started(), job.attempt(), 0), IsOk());
  ASSERT_THAT(Connect(workers[0]), IsOk());
  EXPECT_EQ(State(job.id()), v1::JobStatus::FAILED);
}

TEST_F(ControllerTest, FailsAJobWhoseWorkerWasRestarted) {
  auto workers = Workers(1);
  const v1::JobStatus job = Submit(1);
  controller_.Disconnected(workers[0].session);
  workers[0].incarnation = "second";
  ASSERT_THAT(Connect(workers[0]), IsOk());
  EXPECT_EQ(State(job.id()), v1::JobStatus::FAILED);
  EXPECT_THAT(jobs_.Get(job.id())->reason(), HasSubstr("worker cpu-0 was restarted"));
}

TEST_F(ControllerTest, RepeatsAStopThatMayHaveBeenLost) {
  auto workers = Workers(1);
  const v1::JobStatus job = Submit(1);
  ASSERT_THAT(controller_.Cancel(job.id()), IsOk());
  controller_.Tick();
  ASSERT_THAT(Connect(workers[0], {{job.attempt(), 0}}), IsOk());
  EXPECT_THAT(Got(workers[0], v1::ToWorker::kStop), SizeIs(1));
}

TEST_F(ControllerTest, TakesEveryEventOnce) {
  auto workers = Workers(1);
  const v1::JobStatus job = Submit(1);
  v1::WorkerEvent output;
  output.mutable_output()->add_lines("once");
  ASSERT_THAT(Say(workers[0], output, job.attempt(), 0), IsOk());
  output.set_sequence(workers[0].sequence);
  output.set_attempt(job.attempt());
  ASSERT_THAT(Repeat(workers[0], output), IsOk());
  EXPECT_THAT(jobs_.ReadLog(job.id(), 0, std::nullopt, 1000)->read.lines, SizeIs(1));
}

TEST_F(ControllerTest, DoesNotAcknowledgeWhatTheStoreDidNotTake) {
  auto workers = Workers(1);
  const v1::JobStatus job = Submit(1);
  store_.refuse = true;
  EXPECT_THAT(Say(workers[0], Ended(true), job.attempt(), 0), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_EQ(workers_.Taken(workers[0].session), 0);
  store_.refuse = false;
  --workers[0].sequence;
  EXPECT_THAT(Say(workers[0], Ended(true), job.attempt(), 0), IsOk());
  EXPECT_EQ(State(job.id()), v1::JobStatus::SUCCEEDED);
  EXPECT_EQ(workers_.Taken(workers[0].session), 1);
}

TEST_F(ControllerTest, LetsAWorkerLeave) {
  auto workers = Workers(1);
  const v1::JobStatus job = Submit(1);
  v1::FromWorker leave;
  leave.mutable_leave();
  ASSERT_THAT(controller_.Receive(workers[0].session, leave), IsOk());
  EXPECT_EQ(State(job.id()), v1::JobStatus::QUEUED);  // interrupted: it goes on elsewhere
  EXPECT_THAT(workers_.List(), IsEmpty());
}

}  // namespace
}  // namespace metp
