// Attempts that end by faults, and what follows.

#include "tests/server/controller_fixture.h"

namespace metp {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

v1::WorkerEvent Step(int rank, int step, double took = 1, double compute = 0.5) {
  v1::WorkerEvent event;
  event.mutable_step()->set_rank(rank);
  event.mutable_step()->set_step(step);
  event.mutable_step()->set_loss(1.0 / step);
  event.mutable_step()->set_step_seconds(took);
  event.mutable_step()->set_tokens(100);
  (*event.mutable_step()->mutable_passes())["mlp.forward"].set_compute_seconds(compute);
  return event;
}

v1::WorkerEvent Noted(v1::CheckpointNote::Kind kind, int step, const std::string& text = "/saved/step") {
  v1::WorkerEvent event;
  event.mutable_checkpoint()->set_kind(kind);
  event.mutable_checkpoint()->set_step(step);
  event.mutable_checkpoint()->set_text(text);
  return event;
}

class RecoveryTest : public ControllerTest {
 protected:
  static v1::WorkerEvent Left() {
    v1::WorkerEvent event = Ended(true);
    event.mutable_ended()->mutable_result()->set_interrupted(true);
    event.mutable_ended()->set_left(true);
    return event;
  }
  /// Because a neighbour did.
  static v1::WorkerEvent LeftByItself() {
    v1::WorkerEvent event = Left();
    event.mutable_ended()->set_left(false);
    return event;
  }
  /// What the controller has asked the planner for.
  struct Order {
    v1::JobSpec job;
    metp::Workers workers;
    std::function<void(absl::StatusOr<Choice>)> done;
  };
  void PlanLater() {
    controller_.set_planner([this](const v1::JobSpec& job, const metp::Workers& there,
                                   const std::function<void(absl::StatusOr<Choice>)>& done) {
      orders_.push_back({job, there, done});
    });
  }
  /// A running job over these workers.
  std::string Running(std::vector<Worker>& workers, int max_restarts = 3, int min_degree = 0,
                      int steps = 10) {
    v1::JobSpec job = SmallJob("job", static_cast<int>(workers.size()), steps);
    job.set_max_restarts(max_restarts);
    if (min_degree > 0) job.mutable_parallel()->set_min_degree(min_degree);
    job.mutable_checkpoint()->set_directory("/saved");
    const auto status = SubmitJob("request-" + std::to_string(++requests_), job);
    EXPECT_THAT(status, IsOk());
    controller_.Tick();
    Start(workers, status->id() + "/1");
    return status->id();
  }
  void Start(std::vector<Worker>& workers, const std::string& attempt) {
    for (size_t r = 0; r < workers.size(); ++r)
      EXPECT_THAT(Say(workers[r], Started(), attempt, static_cast<int>(r)), IsOk());
    EXPECT_EQ(State(JobOfAttempt(attempt)), v1::JobStatus::RUNNING);
  }
  void Steps(std::vector<Worker>& workers, const std::string& attempt, int step) {
    for (size_t r = 0; r < workers.size(); ++r)
      EXPECT_THAT(Say(workers[r], Step(static_cast<int>(r), step), attempt, static_cast<int>(r)), IsOk());
  }
  /// Rank 0 is killed, the others stop as they are told.
  void Die(std::vector<Worker>& workers, const std::string& attempt) {
    EXPECT_THAT(Say(workers[0], Ended(false, "killed by signal 9 (SIGKILL)"), attempt, 0), IsOk());
    for (size_t r = 1; r < workers.size(); ++r)
      EXPECT_THAT(
          Say(workers[r], Ended(false, "killed by signal 2 (SIGINT)", true), attempt, static_cast<int>(r)),
          IsOk());
  }
  /// Time passes for those who are heard.
  void Pass(Clock::Duration time, std::vector<Worker>& heard) {
    for (const Clock::Time end = clock_.Now() + time; clock_.Now() < end;) {
      clock_.Advance(std::min<Clock::Duration>(seconds(1), end - clock_.Now()));
      Alive(heard);
      controller_.Tick();
      Check();
    }
  }
  std::vector<std::string> Events(const std::string& id, v1::JobEvent::Kind kind) {
    std::vector<std::string> texts;
    const auto events = jobs_.Events(id);
    EXPECT_THAT(events, IsOk());
    for (const v1::JobEvent& event : *events) {
      if (event.kind() == kind) texts.push_back(event.text());
    }
    return texts;
  }
  std::string Reason(const std::string& id) { return jobs_.Get(id)->reason(); }

  std::vector<Order> orders_;
};

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

TEST_F(RecoveryTest, AnEvictionThatWasNotHeardIsSaidAgain) {
  auto workers = Workers(1);
  const std::string id = Submit(1).id();
  controller_.Disconnected(workers[0].session);
  v1::DrainWorkerRequest drain;
  drain.set_worker("cpu-0");
  drain.set_evict(true);
  ASSERT_THAT(controller_.Drain(drain), IsOk());
  ASSERT_THAT(Connect(workers[0], {{id + "/1", 0}}), IsOk());
  EXPECT_THAT(Got(workers[0], v1::ToWorker::kInterrupt), SizeIs(1));
}

TEST_F(RecoveryTest, AWorkerThatLeavesInterruptsItsJobAtNoCost) {
  auto workers = Workers(2);
  const std::string id = Running(workers, /*max_restarts=*/0);
  ASSERT_THAT(Say(workers[0], Left(), id + "/1", 0), IsOk());
  EXPECT_THAT(Got(workers[1], v1::ToWorker::kStop), IsEmpty());  // it leaves by itself
  ASSERT_THAT(Say(workers[1], LeftByItself(), id + "/1", 1), IsOk());
  EXPECT_EQ(Reason(id), "needs 2 workers, 1 of 2 is free");  // the one that goes takes no more ranks
  v1::FromWorker leave;
  leave.mutable_leave();
  ASSERT_THAT(controller_.Receive(workers[0].session, leave), IsOk());
  ASSERT_THAT(Connect(workers[0]), IsOk());
  EXPECT_EQ(jobs_.Get(id)->attempt(), id + "/2");  // at once
  EXPECT_EQ(jobs_.Get(id)->fruitless_restarts(), 0);
  EXPECT_THAT(Events(id, v1::JobEvent::REQUEUED), SizeIs(1));
}

TEST_F(RecoveryTest, ARankThatIsStillStartingWhenItsWorkerLeavesCostsNothing) {
  auto workers = Workers(2);
  const std::string id = Running(workers, /*max_restarts=*/0);
  v1::FromWorker leave;
  leave.mutable_leave();
  ASSERT_THAT(controller_.Receive(workers[1].session, leave), IsOk());
  ASSERT_THAT(Say(workers[0], Ended(false, "killed by signal 2", true), id + "/1", 0), IsOk());
  EXPECT_EQ(State(id), v1::JobStatus::QUEUED);
  EXPECT_THAT(Events(id, v1::JobEvent::REQUEUED), ElementsAre(HasSubstr("worker cpu-1 has left")));
}

TEST_F(RecoveryTest, AnAttemptThatStandsStillIsEndedAndSaysWhere) {
  auto workers = Workers(2);
  const std::string id = Running(workers);
  for (int step = 1; step <= 3; ++step) Steps(workers, id + "/1", step);
  Pass(config_.hang_floor, workers);
  EXPECT_EQ(Got(workers[0], v1::ToWorker::kStop).size(), 0u);
  Pass(seconds(2), workers);
  for (Worker& worker : workers) {
    const auto stops = Got(worker, v1::ToWorker::kStop);
    ASSERT_THAT(stops, SizeIs(1));
    EXPECT_TRUE(stops[0].stop().dump());
  }
  EXPECT_THAT(Events(id, v1::JobEvent::HANG),
              ElementsAre(AllOf(HasSubstr("after step 3"), HasSubstr("last steps: rank 0 3, rank 1 3"))));
  for (int r = 0; r < 2; ++r)
    ASSERT_THAT(Say(workers[r], Ended(false, "killed by signal 9", true), id + "/1", r), IsOk());
  EXPECT_EQ(State(id), v1::JobStatus::QUEUED);
  EXPECT_THAT(Reason(id), HasSubstr("it hangs"));
}

TEST_F(RecoveryTest, SilenceOfAWorkerIsNoHang) {
  auto workers = Workers(2);
  const std::string id = Running(workers);
  Steps(workers, id + "/1", 1);
  controller_.Disconnected(workers[1].session);
  std::vector<Worker> heard = {workers[0]};
  Pass(config_.lease - seconds(1), heard);
  ASSERT_THAT(Connect(workers[1], {{id + "/1", 1}}), IsOk());
  Pass(config_.hang_floor - seconds(1), workers);
  EXPECT_THAT(Events(id, v1::JobEvent::HANG), IsEmpty());
  Pass(seconds(3), workers);
  EXPECT_THAT(Events(id, v1::JobEvent::HANG), SizeIs(1));
}

TEST_F(RecoveryTest, ALostWorkersRankIsGoneWithinTheLeaseWhereNothingShowsThatItTrainsOn) {
  auto workers = Workers(2);
  const std::string id = Running(workers);
  Steps(workers, id + "/1", 1);
  std::vector<Worker> heard = {workers[0]};
  Pass(config_.lease, heard);
  EXPECT_THAT(Got(workers[0], v1::ToWorker::kStop), IsEmpty());
  Pass(seconds(1), heard);
  EXPECT_THAT(Got(workers[0], v1::ToWorker::kStop), SizeIs(1));
  ASSERT_THAT(Say(workers[0], Ended(false, "killed by signal 2", true), id + "/1", 0), IsOk());
  EXPECT_EQ(State(id), v1::JobStatus::QUEUED);
  EXPECT_THAT(Events(id, v1::JobEvent::RESTART), ElementsAre(HasSubstr("worker cpu-1 is lost")));
}

TEST_F(RecoveryTest, ALostWorkersRankIsWaitedForWhileItsNeighboursStep) {
  auto workers = Workers(2);
  const std::string id = Running(workers);
  std::vector<Worker> heard = {workers[0]};
  for (int step = 1; step <= 9; ++step) {  // SmallJob has ten
    ASSERT_THAT(Say(workers[0], Step(0, step), id + "/1", 0), IsOk());
    Pass(seconds(5), heard);
    heard = {workers[0]};
  }
  EXPECT_EQ(State(id), v1::JobStatus::RUNNING);
  EXPECT_FALSE(jobs_.Get(id)->stopping());
  EXPECT_THAT(Events(id, v1::JobEvent::WORKER), ElementsAre(HasSubstr("may train on, and is waited for")));
  // Its neighbour is done: so was it, whatever becomes of it.
  ASSERT_THAT(Say(workers[0], Step(0, 10), id + "/1", 0), IsOk());
  ASSERT_THAT(Say(workers[0], Ended(true), id + "/1", 0), IsOk());
  EXPECT_EQ(State(id), v1::JobStatus::SUCCEEDED);
  EXPECT_THAT(CurveOf(id), SizeIs(10));
}

TEST_F(RecoveryTest, ARunIsTakenUpAgainWhenAllItsWorkersHadBeenAway) {
  auto workers = Workers(2);
  const std::string id = Running(workers);
  Steps(workers, id + "/1", 1);
  std::vector<Worker> nobody;
  Pass(config_.lease * 3, nobody);
  EXPECT_EQ(State(id), v1::JobStatus::RUNNING);
  ASSERT_THAT(Connect(workers[1], {{id + "/1", 1}}), IsOk());
  std::vector<Worker> one = {workers[1]};
  Pass(config_.lease - seconds(1), one);
  EXPECT_FALSE(jobs_.Get(id)->stopping());
  ASSERT_THAT(Connect(workers[0], {{id + "/1", 0}}), IsOk());
  EXPECT_THAT(Got(workers[0], v1::ToWorker::kStop), IsEmpty());
  for (int step = 2; step <= 10; ++step) Steps(workers, id + "/1", step);
  for (int r = 0; r < 2; ++r) ASSERT_THAT(Say(workers[r], Ended(true), id + "/1", r), IsOk());
  EXPECT_EQ(State(id), v1::JobStatus::SUCCEEDED);
  EXPECT_THAT(CurveOf(id), SizeIs(10));
  EXPECT_EQ(jobs_.Get(id)->restarts(), 0);
}

TEST_F(RecoveryTest, ARunIsNotWaitedForWhereItCanGoOnElsewhere) {
  auto workers = Workers(2);
  const std::string id = Running(workers);
  Worker spare, other;
  spare.name = "spare-0";
  other.name = "spare-1";
  ASSERT_THAT(Connect(spare), IsOk());
  ASSERT_THAT(Connect(other), IsOk());
  std::vector<Worker> spares = {spare, other};
  Pass(config_.lease + seconds(3), spares);
  EXPECT_EQ(jobs_.Get(id)->attempt(), id + "/2");
  EXPECT_EQ(jobs_.Get(id)->ranks(0).worker(), "spare-0");
}

TEST_F(RecoveryTest, AJobShrinksToTheWorkersThatAreLeftAndGrowsBack) {
  auto workers = Workers(4);
  PlanLater();
  const std::string id = Running(workers, 3, /*min_degree=*/2);
  Die(workers, id + "/1");
  v1::FromWorker leave;
  leave.mutable_leave();
  ASSERT_THAT(controller_.Receive(workers[3].session, leave), IsOk());
  std::vector<Worker> three(workers.begin(), workers.begin() + 3);
  Pass(seconds(2), three);
  EXPECT_THAT(Reason(id), HasSubstr("needs 4 workers, 3 are there"));
  Pass(config_.replan_after, three);
  ASSERT_THAT(orders_, SizeIs(1));
  EXPECT_EQ(orders_[0].workers.count, 3);
  EXPECT_EQ(orders_[0].job.parallel().degree(), 0);
  const auto choice = PlanOn(orders_[0].job, orders_[0].workers);
  ASSERT_THAT(choice, IsOk());
  orders_[0].done(choice);
  controller_.Tick();
  Check();
  EXPECT_EQ(jobs_.Get(id)->attempt(), id + "/2");
  EXPECT_EQ(jobs_.Get(id)->plan().degree(), 3);
  EXPECT_THAT(Events(id, v1::JobEvent::REPLANNED),
              ElementsAre(HasSubstr("on the 3 workers that are there: 3 ranks")));
  Start(three, id + "/2");
  ASSERT_THAT(Connect(workers[3]), IsOk());
  Die(three, id + "/2");
  Pass(seconds(2), workers);
  EXPECT_EQ(jobs_.Get(id)->attempt(), id + "/3");
  EXPECT_EQ(jobs_.Get(id)->plan().degree(), 4);
}

TEST_F(RecoveryTest, AJobThatCannotShrinkSaysWhy) {
  auto workers = Workers(2);
  PlanLater();
  const std::string id = Running(workers, 3, /*min_degree=*/1);
  Die(workers, id + "/1");
  v1::FromWorker leave;
  leave.mutable_leave();
  ASSERT_THAT(controller_.Receive(workers[1].session, leave), IsOk());
  std::vector<Worker> one = {workers[0]};
  Pass(config_.replan_after + seconds(3), one);
  ASSERT_THAT(orders_, SizeIs(1));
  orders_[0].done(absl::ResourceExhaustedError("it does not fit"));
  controller_.Tick();
  EXPECT_EQ(Reason(id), "needs 2 workers, 1 is there; on fewer: it does not fit");
  Pass(config_.replan_after * 3, one);
  EXPECT_THAT(orders_, SizeIs(1));  // not again on the same workers
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

TEST_F(RecoveryTest, ADrainedWorkerTakesNoRanksAndEvictedOnesLeave) {
  auto workers = Workers(2);
  v1::DrainWorkerRequest drain;
  drain.set_worker("cpu-7");
  EXPECT_THAT(controller_.Drain(drain), StatusIs(absl::StatusCode::kNotFound, HasSubstr("cpu-7")));
  drain.set_worker("cpu-0");
  drain.set_reason("new memory");
  ASSERT_THAT(controller_.Drain(drain), IsOk());
  const std::string id = Submit(1).id();
  EXPECT_EQ(jobs_.Get(id)->ranks(0).worker(), "cpu-1");
  EXPECT_THAT(Got(workers[1], v1::ToWorker::kInterrupt), IsEmpty());
  drain.set_worker("cpu-1");
  drain.set_evict(true);
  ASSERT_THAT(controller_.Drain(drain), IsOk());
  EXPECT_THAT(Got(workers[1], v1::ToWorker::kInterrupt), SizeIs(1));
  Restart();  // it is remembered
  EXPECT_EQ(workers_.registered(), 0);
  EXPECT_EQ(workers_.drained(), 2);
  ASSERT_THAT(Connect(workers[0]), IsOk());
  ASSERT_THAT(Connect(workers[1], {{id + "/1", 0}}), IsOk());
  ASSERT_THAT(Say(workers[1], Left(), id + "/1", 0), IsOk());
  EXPECT_EQ(State(id), v1::JobStatus::QUEUED);
  EXPECT_EQ(Reason(id), "needs 1 worker, 0 are there, 2 drained");
  drain.set_worker("cpu-0");
  drain.set_undrain(true);
  ASSERT_THAT(controller_.Drain(drain), IsOk());
  controller_.Tick();
  EXPECT_EQ(jobs_.Get(id)->ranks(0).worker(), "cpu-0");
}

TEST_F(RecoveryTest, ASlowRankIsNamed) {
  auto workers = Workers(3);
  const std::string id = Running(workers, 3, 0, /*steps=*/20);
  const std::string attempt = id + "/1";
  for (int step = 1; step <= 20; ++step) {
    for (int r = 0; r < 3; ++r)
      ASSERT_THAT(Say(workers[r], Step(r, step, 1, r == 1 ? 1.0 : 0.5), attempt, r), IsOk());
  }
  EXPECT_NEAR(jobs_.Get(id)->ranks(1).straggler_ratio(), 2, 1e-9);
  EXPECT_NEAR(jobs_.Get(id)->ranks(0).straggler_ratio(), 1, 1e-9);
  EXPECT_THAT(Events(id, v1::JobEvent::STRAGGLER),
              ElementsAre(HasSubstr("rank 1 on worker cpu-1 computes 2.0 times as long")));
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
