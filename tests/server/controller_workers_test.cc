// Workers that are lost, leave, come back and are drained, and attempts that stand still.

#include "tests/server/recovery_fixture.h"

namespace metp {
namespace {

using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST_F(RecoveryTest, AWorkerThatIsUndrainedWhileItsRankLeavesTakesRanksAgain) {
  auto workers = Workers(1);
  const std::string id = Submit(1).id();
  v1::DrainWorkerRequest drain;
  drain.set_worker("cpu-0");
  drain.set_evict(true);
  ASSERT_THAT(controller_.Drain(drain), IsOk());
  drain.set_undrain(true);
  ASSERT_THAT(controller_.Drain(drain), IsOk());
  ASSERT_THAT(Say(workers[0], Left(), id + "/1", 0), IsOk());
  EXPECT_EQ(jobs_.Get(id)->attempt(), id + "/2");
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
  EXPECT_EQ(workers_.registered(v1::JobSpec::DEVICE_CPU), 0);
  EXPECT_EQ(workers_.drained(v1::JobSpec::DEVICE_CPU), 2);
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

}  // namespace
}  // namespace metp
