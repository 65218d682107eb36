// Attempts that end by faults, and what follows.

#include "tests/server/recovery_fixture.h"

namespace metp {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

TEST_F(RecoveryTest, AJobWhoseRankDiedIsTriedAgainAfterAWait) {
  auto workers = Workers(2);
  const std::string id = Running(workers);
  Die(workers, id + "/1");
  EXPECT_EQ(State(id), v1::JobStatus::QUEUED);
  EXPECT_THAT(Reason(id),
              HasSubstr("rank 0 on worker cpu-0: killed by signal 9 (SIGKILL); tried again after 1 s"));
  Pass(milliseconds(999), workers);
  EXPECT_EQ(State(id), v1::JobStatus::QUEUED);
  Pass(milliseconds(1), workers);
  EXPECT_EQ(State(id), v1::JobStatus::STARTING);
  EXPECT_EQ(jobs_.Get(id)->attempt(), id + "/2");
  EXPECT_EQ(jobs_.Get(id)->restarts(), 1);
  EXPECT_THAT(Events(id, v1::JobEvent::RESTART), ElementsAre(HasSubstr("killed by signal 9")));
}

TEST_F(RecoveryTest, RestartsAreCountedUntilThereIsANewerCheckpoint) {
  auto workers = Workers(1);
  const std::string id = Running(workers, /*max_restarts=*/2);
  Die(workers, id + "/1");
  Pass(seconds(1), workers);
  Start(workers, id + "/2");
  EXPECT_EQ(jobs_.Get(id)->fruitless_restarts(), 1);
  ASSERT_THAT(Say(workers[0], Noted(v1::CheckpointNote::SAVED, 5), id + "/2", 0), IsOk());
  Die(workers, id + "/2");
  EXPECT_EQ(jobs_.Get(id)->fruitless_restarts(), 0);
  Pass(seconds(1), workers);
  for (const char* attempt : {"/3", "/4"}) {
    Start(workers, id + attempt);
    ASSERT_THAT(Say(workers[0], Noted(v1::CheckpointNote::RESUMED, 5), id + attempt, 0), IsOk());
    Die(workers, id + attempt);
    Pass(seconds(4), workers);
  }
  Start(workers, id + "/5");
  Die(workers, id + "/5");
  EXPECT_EQ(State(id), v1::JobStatus::FAILED);
  EXPECT_THAT(Reason(id), HasSubstr("given up after 2 restarts without a newer checkpoint; its last good "
                                    "checkpoint is of step 5 in /saved"));
  EXPECT_EQ(jobs_.Get(id)->restarts(), 4);
}

TEST_F(RecoveryTest, ALossThatIsNotFiniteIsTheEndAndNamesTheLastCheckpoint) {
  auto workers = Workers(1);
  const std::string id = Running(workers);
  ASSERT_THAT(Say(workers[0], Noted(v1::CheckpointNote::SAVED, 4), id + "/1", 0), IsOk());
  v1::WorkerEvent event = Ended(false, "exited with code 1");
  event.mutable_ended()->mutable_result()->set_code(static_cast<int>(absl::StatusCode::kDataLoss));
  event.mutable_ended()->mutable_result()->set_message("step 7: loss is nan");
  ASSERT_THAT(Say(workers[0], event, id + "/1", 0), IsOk());
  EXPECT_EQ(State(id), v1::JobStatus::FAILED);
  EXPECT_THAT(Reason(id),
              AllOf(HasSubstr("step 7: loss is nan"), HasSubstr("checkpoint is of step 4 in /saved")));
}

TEST_F(RecoveryTest, WhatALaterAttemptGoesOnFromIsItsOwnCheckpoint) {
  auto workers = Workers(1);
  v1::JobSpec job = SmallJob("job", 1);
  job.set_max_restarts(3);
  job.mutable_checkpoint()->set_directory("/saved");
  job.mutable_checkpoint()->set_resume("none");
  const std::string id = SubmitJob("r", job)->id();
  controller_.Tick();
  const auto resume = [&] {
    const auto got = Got(workers[0], v1::ToWorker::kStart);
    return got.size() == 1 ? got[0].start().start().job().checkpoint().resume() : "not started once";
  };
  EXPECT_EQ(resume(), "none");
  Start(workers, id + "/1");
  Die(workers, id + "/1");
  Pass(seconds(1), workers);
  EXPECT_EQ(resume(), "none");
  Start(workers, id + "/2");
  ASSERT_THAT(Say(workers[0], Noted(v1::CheckpointNote::SAVED, 5), id + "/2", 0), IsOk());
  Die(workers, id + "/2");
  Pass(seconds(2), workers);
  EXPECT_EQ(resume(), "auto");
}

TEST_F(RecoveryTest, StepsWhoseReportsWereLostAreFilledInFromTheCheckpoint) {
  auto workers = Workers(2);
  const std::string id = Running(workers);
  ASSERT_THAT(Say(workers[0], Noted(v1::CheckpointNote::RESUMED, 2), id + "/1", 0), IsOk());
  v1::WorkerEvent history = Noted(v1::CheckpointNote::HISTORY, 0);
  for (int step = 1; step <= 2; ++step) history.mutable_checkpoint()->add_history()->set_step(step);
  ASSERT_THAT(Say(workers[0], history, id + "/1", 0), IsOk());
  Steps(workers, id + "/1", 3);
  ASSERT_THAT(Say(workers[1], Step(1, 4), id + "/1", 1), IsOk());  // of rank 0 it is lost
  EXPECT_THAT(CurveOf(id), ElementsAre(3));                        // 1 and 2 were not this job's
  Die(workers, id + "/1");
  Pass(seconds(1), workers);
  Start(workers, id + "/2");
  ASSERT_THAT(Say(workers[0], Noted(v1::CheckpointNote::RESUMED, 6), id + "/2", 0), IsOk());
  for (int step = 3; step <= 6; ++step) {
    history.mutable_checkpoint()->add_history()->set_step(step);
    history.mutable_checkpoint()->mutable_history()->rbegin()->set_loss(step);
  }
  ASSERT_THAT(Say(workers[0], history, id + "/2", 0), IsOk());
  EXPECT_THAT(CurveOf(id), ElementsAre(3, 4, 5, 6));
  EXPECT_EQ(jobs_.Get(id)->step(), 6);
  EXPECT_EQ(jobs_.Read(id, 0, 10)->steps[0].loss(), 1.0 / 3);  // what was reported stays
  Restart();
  EXPECT_THAT(CurveOf(id), ElementsAre(3, 4, 5, 6));
}

TEST_F(RecoveryTest, AJobThatWentOnFromAnothersCheckpointKeepsItsOwnStepsOnly) {
  auto workers = Workers(1);
  const std::string id = Running(workers);
  Die(workers, id + "/1");  // before it could say where it began
  Pass(seconds(1), workers);
  Start(workers, id + "/2");
  ASSERT_THAT(Say(workers[0], Noted(v1::CheckpointNote::RESUMED, 2), id + "/2", 0), IsOk());
  v1::WorkerEvent history = Noted(v1::CheckpointNote::HISTORY, 0);
  for (int step = 1; step <= 2; ++step) history.mutable_checkpoint()->add_history()->set_step(step);
  ASSERT_THAT(Say(workers[0], history, id + "/2", 0), IsOk());
  Steps(workers, id + "/2", 3);
  EXPECT_THAT(CurveOf(id), ElementsAre(3));
}

TEST_F(RecoveryTest, AStepThatIsRepeatedIsNotLostWithTheCoordinator) {
  auto workers = Workers(2);
  const std::string id = Running(workers);
  for (int step = 1; step <= 5; ++step) Steps(workers, id + "/1", step);
  ASSERT_THAT(Say(workers[0], Noted(v1::CheckpointNote::SAVED, 2), id + "/1", 0), IsOk());
  Die(workers, id + "/1");
  Pass(seconds(1), workers);
  Start(workers, id + "/2");
  ASSERT_THAT(Say(workers[0], Noted(v1::CheckpointNote::RESUMED, 2), id + "/2", 0), IsOk());
  ASSERT_THAT(Say(workers[0], Step(0, 3), id + "/2", 0), IsOk());
  ASSERT_THAT(Say(workers[0], Step(0, 4), id + "/2", 0), IsOk());
  Restart();
  for (int r = 0; r < 2; ++r) ASSERT_THAT(Connect(workers[r], {{id + "/2", r}}), IsOk());
  ASSERT_THAT(Say(workers[1], Step(1, 3), id + "/2", 1), IsOk());
  EXPECT_THAT(CurveOf(id), ElementsAre(1, 2, 3));
  Restart();
  for (int r = 0; r < 2; ++r) ASSERT_THAT(Connect(workers[r], {{id + "/2", r}}), IsOk());
  ASSERT_THAT(Say(workers[1], Step(1, 4), id + "/2", 1), IsOk());
  EXPECT_THAT(CurveOf(id), ElementsAre(1, 2, 3, 4));
}

TEST_F(RecoveryTest, TheJobThatEndsLastIsKeptHoweverLongAgoItWasSubmitted) {
  config_.finished_jobs_kept = 1;
  auto workers = Workers(2);
  const std::string slow = Submit(1, "slow").id(), quick = Submit(1, "quick").id();
  ASSERT_THAT(Say(workers[1], Ended(true), quick + "/1", 0), IsOk());
  clock_.Advance(seconds(1));
  ASSERT_THAT(Say(workers[0], Ended(true), slow + "/1", 0), IsOk());
  EXPECT_EQ(State(slow), v1::JobStatus::SUCCEEDED);
  EXPECT_THAT(jobs_.Get(quick), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(RecoveryTest, WhatWaitedIsKeptThroughARestartOfTheCoordinator) {
  auto workers = Workers(1);
  const std::string id = Running(workers);
  ASSERT_THAT(Say(workers[0], Noted(v1::CheckpointNote::SAVED, 5), id + "/1", 0), IsOk());
  ASSERT_THAT(Say(workers[0], Ended(false, "killed"), id + "/1", 0), IsOk());
  Restart();
  EXPECT_EQ(State(id), v1::JobStatus::QUEUED);
  EXPECT_EQ(jobs_.Get(id)->checkpoint_step(), 5);
  ASSERT_THAT(Connect(workers[0]), IsOk());
  EXPECT_EQ(State(id), v1::JobStatus::QUEUED);
  Pass(seconds(2), workers);
  EXPECT_EQ(jobs_.Get(id)->attempt(), id + "/2");
}

TEST_F(RecoveryTest, TheKindOfACauseIsKeptThroughARestartOfTheCoordinator) {
  auto workers = Workers(2);
  const std::string id = Running(workers, /*max_restarts=*/0);
  v1::WorkerEvent complaint = Ended(false, "exited with code 1");
  complaint.mutable_ended()->mutable_result()->set_code(static_cast<int>(absl::StatusCode::kUnavailable));
  complaint.mutable_ended()->mutable_result()->set_message("rank 1 is gone");
  ASSERT_THAT(Say(workers[0], complaint, id + "/1", 0), IsOk());
  Restart();
  ASSERT_THAT(Connect(workers[1], {{id + "/1", 1}}), IsOk());
  ASSERT_THAT(Say(workers[1], Ended(false, "killed by signal 9"), id + "/1", 1), IsOk());
  EXPECT_THAT(Reason(id), HasSubstr("rank 1 on worker cpu-1: killed by signal 9"));
}

TEST_F(RecoveryTest, EventsTakenBeforeARestartAreNotTakenTwice) {
  auto workers = Workers(1);
  const std::string id = Running(workers);
  v1::WorkerEvent line;
  line.mutable_output()->add_lines("hello");
  ASSERT_THAT(Say(workers[0], line, id + "/1", 0), IsOk());
  line.set_sequence(workers[0].sequence);
  line.set_attempt(id + "/1");
  Restart();
  ASSERT_THAT(Connect(workers[0], {{id + "/1", 0}}), IsOk());
  ASSERT_THAT(Repeat(workers[0], line), IsOk());  // its acknowledgement had been lost
  const auto log = jobs_.ReadLog(id, 0, std::nullopt, 1000);
  ASSERT_THAT(log, IsOk());
  ASSERT_THAT(log->read.lines, SizeIs(1));
  EXPECT_EQ(log->read.lines[0].text(), "hello");
}

TEST_F(RecoveryTest, TroubleWithCheckpointsIsSaidAndTrainingGoesOn) {
  auto workers = Workers(2);
  const std::string id = Running(workers);
  ASSERT_THAT(Say(workers[1], Noted(v1::CheckpointNote::FAILED, 5, "no space left"), id + "/1", 1), IsOk());
  EXPECT_EQ(jobs_.Get(id)->checkpoint_trouble(), "step 5, rank 1: no space left");
  EXPECT_EQ(State(id), v1::JobStatus::RUNNING);
  ASSERT_THAT(Say(workers[0], Noted(v1::CheckpointNote::PASSED_OVER, 5, "a checksum is wrong"), id + "/1", 0),
              IsOk());
  ASSERT_THAT(Say(workers[1], Noted(v1::CheckpointNote::PASSED_OVER, 5, "a checksum is wrong"), id + "/1", 1),
              IsOk());
  EXPECT_THAT(Events(id, v1::JobEvent::CHECKPOINT),
              ElementsAre(HasSubstr("rank 1: no space left"), HasSubstr("passed over: a checksum is wrong")));
  ASSERT_THAT(Say(workers[0], Noted(v1::CheckpointNote::SAVED, 10), id + "/1", 0), IsOk());
  EXPECT_EQ(jobs_.Get(id)->checkpoint_trouble(), "");
}

TEST_F(RecoveryTest, AFolderOfCheckpointsHasOneWriterAtATime) {
  auto workers = Workers(2);
  v1::JobSpec job = SmallJob("job", 1);
  job.mutable_checkpoint()->set_directory("/saved");
  const std::string first = SubmitJob("a", job)->id(), second = SubmitJob("b", job)->id();
  controller_.Tick();
  EXPECT_EQ(State(first), v1::JobStatus::STARTING);
  EXPECT_EQ(Reason(second), "waits for job " + first + ", which writes to the same checkpoint.directory");
}

}  // namespace
}  // namespace metp
