#include "server/job_table.h"

#include <gmock/gmock.h>

#include <thread>

#include "server/invariants.h"
#include "server/store/memory_store.h"
#include "tests/support/fake_clock.h"
#include "tests/support/jobs.h"
#include "tests/support/status_matchers.h"

namespace metp {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

/// A store that can be told to refuse.
class FaultyStore : public MemoryStore {
 public:
  absl::Status Write(const StoreChange& change) override {
    return refuse ? absl::UnavailableError("disk full") : MemoryStore::Write(change);
  }
  bool refuse = false;
};

class JobTableTest : public ::testing::Test {
 protected:
  void TearDown() override { EXPECT_THAT(invariants_.Check(table_.Snapshot()), IsOk()); }

  std::string Queued(const std::string& name = "job", int degree = 2, int steps = 10) {
    v1::Plan plan;
    plan.set_degree(degree);
    const auto status =
        table_.Add("request-" + std::to_string(++requests_), SmallJob(name, degree, steps), plan, {});
    EXPECT_THAT(status, IsOk());
    return status->id();
  }
  std::string Starting(const std::string& id) {
    std::vector<Placement> placement;
    for (int r = 0; r < Status(id).plan().degree(); ++r) {
      placement.push_back({id + "-worker-" + std::to_string(r), "http://metrics"});
    }
    const auto attempt = table_.StartAttempt(id, placement);
    EXPECT_THAT(attempt, IsOk());
    return *attempt;
  }
  std::string Running(const std::string& id) {
    const std::string attempt = Starting(id);
    for (int r = 0; r < Status(id).plan().degree(); ++r) {
      EXPECT_THAT(table_.RankStarted(attempt, r, "runs"), IsOk());
    }
    return attempt;
  }
  v1::JobStatus Status(const std::string& id) {
    EXPECT_THAT(invariants_.Check(table_.Snapshot()), IsOk());
    return *table_.Get(id);
  }
  absl::Status Report(const std::string& attempt, int rank, int step, double seconds = 1) {
    v1::StepReport report;
    report.set_rank(rank);
    report.set_step(step);
    report.set_loss(10.0 / step);
    report.set_step_seconds(seconds);
    report.set_tokens(100);
    return table_.Report(attempt, report);
  }
  static RankEnd Done() { return {EndKind::kDone, "done"}; }

  CoordinatorConfig config_;
  FakeClock clock_;
  FaultyStore store_;
  ChangeHub changes_;
  JobTable table_{config_, clock_, store_, changes_};
  Invariants invariants_;
  int requests_ = 0;
};

TEST_F(JobTableTest, QueuesANewJobUnderItsNameAndANumber) {
  const std::string first = Queued("licenses"), second = Queued("licenses");
  EXPECT_EQ(first, "licenses-1");
  EXPECT_EQ(second, "licenses-2");
  EXPECT_EQ(Status(first).state(), v1::JobStatus::QUEUED);
  EXPECT_TRUE(Status(first).has_submitted());
}

TEST_F(JobTableTest, GivesTheSameJobForTheSameRequest) {
  v1::Plan plan;
  plan.set_degree(1);
  const v1::JobSpec job = SmallJob("a", 1);
  EXPECT_THAT(table_.Repeated("r", job), StatusIs(absl::StatusCode::kNotFound));
  const auto made = table_.Add("r", job, plan, {});
  const auto again = table_.Repeated("r", job);
  ASSERT_THAT(again, IsOk());
  EXPECT_EQ(again->id(), made->id());
  EXPECT_THAT(table_.Repeated("r", SmallJob("b", 1)),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("a-1")));
  EXPECT_THAT(table_.Add("", job, plan, {}), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(JobTableTest, TakesAJobThroughItsWholeLife) {
  const std::string id = Queued();
  const std::string attempt = Starting(id);
  EXPECT_EQ(attempt, id + "/1");
  EXPECT_EQ(Status(id).state(), v1::JobStatus::STARTING);
  ASSERT_THAT(table_.RankStarted(attempt, 1, "runs"), IsOk());
  EXPECT_EQ(Status(id).state(), v1::JobStatus::STARTING);
  ASSERT_THAT(table_.RankStarted(attempt, 0, "runs"), IsOk());
  EXPECT_EQ(Status(id).state(), v1::JobStatus::RUNNING);
  ASSERT_THAT(table_.RankGone(attempt, 0, Done()), IsOk());
  EXPECT_EQ(Status(id).state(), v1::JobStatus::RUNNING);
  EXPECT_FALSE(Status(id).stopping());
  ASSERT_THAT(table_.RankGone(attempt, 1, Done()), IsOk());
  EXPECT_EQ(Status(id).state(), v1::JobStatus::SUCCEEDED);
  EXPECT_THAT(table_.LiveRanks(), IsEmpty());
}

TEST_F(JobTableTest, RefusesToStartWhatIsNotQueued) {
  const std::string id = Queued("job", 1);
  EXPECT_THAT(table_.StartAttempt(id, {{"a", ""}, {"b", ""}}), StatusIs(absl::StatusCode::kInvalidArgument));
  const std::string attempt = Starting(id);
  EXPECT_THAT(table_.StartAttempt(id, {{"other", ""}}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("STARTING")));
  ASSERT_THAT(table_.RankGone(attempt, 0, Done()), IsOk());
  EXPECT_THAT(table_.StartAttempt(id, {{"other", ""}}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("SUCCEEDED")));
  EXPECT_THAT(table_.StartAttempt("nobody", {{"other", ""}}), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(JobTableTest, RefusesToStartACancelledJob) {
  const std::string id = Queued();
  ASSERT_THAT(table_.Cancel(id), IsOk());
  EXPECT_EQ(Status(id).state(), v1::JobStatus::CANCELLED);
  EXPECT_THAT(table_.StartAttempt(id, {{"a", ""}, {"b", ""}}),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_F(JobTableTest, RefusesMessagesOfOtherAttempts) {
  const std::string id = Queued("job", 1);
  EXPECT_THAT(table_.RankStarted(id + "/1", 0, ""), StatusIs(absl::StatusCode::kFailedPrecondition));
  const std::string attempt = Running(id);
  for (const std::string& stale : {id + "/0", id + "/2", std::string("nobody-9/1"), std::string()}) {
    EXPECT_THAT(table_.RankStarted(stale, 0, ""), StatusIs(absl::StatusCode::kFailedPrecondition)) << stale;
    EXPECT_THAT(Report(stale, 0, 1), StatusIs(absl::StatusCode::kFailedPrecondition)) << stale;
    EXPECT_THAT(table_.AppendOutput(stale, 0, {"x"}, 0), StatusIs(absl::StatusCode::kFailedPrecondition))
        << stale;
    EXPECT_THAT(table_.RankGone(stale, 0, Done()), StatusIs(absl::StatusCode::kFailedPrecondition)) << stale;
  }
  EXPECT_THAT(table_.RankStarted(attempt, 1, ""), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(table_.RankStarted(attempt, -1, ""), StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_F(JobTableTest, RefusesMessagesOfARankThatIsGone) {
  const std::string id = Queued();
  const std::string attempt = Running(id);
  ASSERT_THAT(table_.RankGone(attempt, 0, Done()), IsOk());
  EXPECT_THAT(Report(attempt, 0, 1), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(table_.RankGone(attempt, 0, {EndKind::kDeath, "again"}),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  ASSERT_THAT(table_.RankGone(attempt, 1, Done()), IsOk());
  EXPECT_THAT(table_.RankGone(attempt, 1, {EndKind::kDeath, "late"}),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_EQ(Status(id).state(), v1::JobStatus::SUCCEEDED);
}

TEST_F(JobTableTest, FailsWithTheDeathOfARankAndStopsTheOthersAtOnce) {
  const std::string id = Queued("job", 3);
  const std::string attempt = Running(id);
  ASSERT_THAT(table_.RankGone(attempt, 1, {EndKind::kDeath, "killed by signal 9"}), IsOk());
  EXPECT_EQ(Status(id).state(), v1::JobStatus::RUNNING);
  EXPECT_TRUE(Status(id).stopping());
  const auto stops = table_.TakeStops();
  ASSERT_THAT(stops, SizeIs(2));
  EXPECT_EQ(stops[0].rank, 0);
  EXPECT_EQ(stops[1].rank, 2);
  EXPECT_THAT(table_.TakeStops(), IsEmpty());
  ASSERT_THAT(table_.RankGone(attempt, 0, {EndKind::kStopped, "stopped"}), IsOk());
  ASSERT_THAT(table_.RankGone(attempt, 2, {EndKind::kConsequence, "neighbour gone"}), IsOk());
  EXPECT_EQ(Status(id).state(), v1::JobStatus::FAILED);
  EXPECT_EQ(Status(id).reason(), "killed by signal 9");
}

TEST_F(JobTableTest, LetsTheRealCauseArriveAfterItsConsequences) {
  const std::string id = Queued("job", 3);
  const std::string attempt = Running(id);
  ASSERT_THAT(table_.RankGone(attempt, 0, {EndKind::kConsequence, "neighbour gone"}), IsOk());
  EXPECT_THAT(table_.TakeStops(), IsEmpty());
  ASSERT_TRUE(table_.NextDeadline().has_value());
  EXPECT_EQ(*table_.NextDeadline(), clock_.Now() + config_.cause_window);
  ASSERT_THAT(table_.RankGone(attempt, 1, {EndKind::kError, "out of memory"}), IsOk());
  EXPECT_THAT(table_.TakeStops(), SizeIs(1));
  ASSERT_THAT(table_.RankGone(attempt, 2, {EndKind::kDeath, "killed later"}), IsOk());
  EXPECT_EQ(Status(id).reason(), "out of memory");
}

TEST_F(JobTableTest, StopsTheOthersWhenTheCauseWindowIsOver) {
  const std::string id = Queued("job", 2);
  const std::string attempt = Running(id);
  ASSERT_THAT(table_.RankGone(attempt, 0, {EndKind::kConsequence, "neighbour gone"}), IsOk());
  clock_.Advance(config_.cause_window);
  EXPECT_THAT(table_.TakeStops(), SizeIs(1));
  EXPECT_FALSE(table_.NextDeadline().has_value());
  ASSERT_THAT(table_.RankGone(attempt, 1, {EndKind::kStopped, "stopped"}), IsOk());
  EXPECT_EQ(Status(id).reason(), "neighbour gone");
}

TEST_F(JobTableTest, CancelsARunningJobOnlyWhenItsProcessesAreGone) {
  const std::string id = Queued();
  const std::string attempt = Running(id);
  const auto cancelled = table_.Cancel(id);
  ASSERT_THAT(cancelled, IsOk());
  EXPECT_EQ(cancelled->state(), v1::JobStatus::RUNNING);
  EXPECT_TRUE(cancelled->stopping());
  EXPECT_THAT(table_.Cancel(id), IsOk());
  EXPECT_THAT(table_.TakeStops(), SizeIs(2));
  ASSERT_THAT(table_.RankGone(attempt, 0, {EndKind::kStopped, "stopped"}), IsOk());
  EXPECT_EQ(Status(id).state(), v1::JobStatus::RUNNING);
  ASSERT_THAT(table_.RankGone(attempt, 1, {EndKind::kStopped, "stopped"}), IsOk());
  EXPECT_EQ(Status(id).state(), v1::JobStatus::CANCELLED);
  EXPECT_THAT(table_.Cancel(id), IsOk());
}

TEST_F(JobTableTest, CancelsAStartingJob) {
  const std::string id = Queued("job", 1);
  const std::string attempt = Starting(id);
  ASSERT_THAT(table_.Cancel(id), IsOk());
  ASSERT_THAT(table_.RankStarted(attempt, 0, "too late"), IsOk());
  EXPECT_EQ(Status(id).state(), v1::JobStatus::STARTING);
  ASSERT_THAT(table_.RankGone(attempt, 0, {EndKind::kStopped, ""}), IsOk());
  EXPECT_EQ(Status(id).state(), v1::JobStatus::CANCELLED);
}

TEST_F(JobTableTest, SucceedsIfAllRanksWereDoneBeforeTheCancellationReachedThem) {
  const std::string id = Queued();
  const std::string attempt = Running(id);
  ASSERT_THAT(table_.Cancel(id), IsOk());
  ASSERT_THAT(table_.RankGone(attempt, 0, Done()), IsOk());
  ASSERT_THAT(table_.RankGone(attempt, 1, Done()), IsOk());
  EXPECT_EQ(Status(id).state(), v1::JobStatus::SUCCEEDED);
}

TEST_F(JobTableTest, CancelsWhatIsFailingButNotWhatHasEnded) {
  const std::string done = Queued("done", 1), failing = Queued("failing", 2);
  ASSERT_THAT(table_.RankGone(Running(done), 0, Done()), IsOk());
  EXPECT_THAT(table_.Cancel(done), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("SUCCEEDED")));
  ASSERT_THAT(table_.RankGone(Running(failing), 0, {EndKind::kDeath, "dead"}), IsOk());
  EXPECT_THAT(table_.Cancel(failing), IsOk());
  ASSERT_THAT(table_.RankGone(failing + "/1", 1, {EndKind::kStopped, ""}), IsOk());
  EXPECT_EQ(Status(failing).state(), v1::JobStatus::CANCELLED);
  EXPECT_THAT(table_.Cancel("nobody"), StatusIs(absl::StatusCode::kNotFound, HasSubstr("nobody")));
}

TEST_F(JobTableTest, ShowsAStepWhenEveryRankHasReportedIt) {
  const std::string id = Queued();
  const std::string attempt = Running(id);
  ASSERT_THAT(Report(attempt, 1, 1, 2.0), IsOk());
  EXPECT_THAT(table_.Read(id, 0, 100)->steps, IsEmpty());
  ASSERT_THAT(Report(attempt, 0, 1, 1.0), IsOk());
  const auto update = table_.Read(id, 0, 100);
  ASSERT_THAT(update->steps, SizeIs(1));
  EXPECT_EQ(update->steps[0].step_seconds(), 2.0);
  EXPECT_EQ(update->steps[0].loss(), 10.0);
  EXPECT_EQ(update->status.step(), 1);
  EXPECT_EQ(update->status.tokens_per_second(), 50.0);
}

TEST_F(JobTableTest, IgnoresAStepReportedTwice) {
  const std::string id = Queued();
  const std::string attempt = Running(id);
  for (int i = 0; i < 2; ++i) ASSERT_THAT(Report(attempt, 0, 1), IsOk());
  EXPECT_THAT(table_.Read(id, 0, 100)->steps, IsEmpty());
  ASSERT_THAT(Report(attempt, 1, 1), IsOk());
  EXPECT_THAT(table_.Read(id, 0, 100)->steps, SizeIs(1));
}

TEST_F(JobTableTest, ReadsStepsInPiecesFromAnyStepOn) {
  const std::string id = Queued("job", 1);
  const std::string attempt = Running(id);
  for (int step = 1; step <= 5; ++step) ASSERT_THAT(Report(attempt, 0, step), IsOk());
  const auto first = table_.Read(id, 0, 3), rest = table_.Read(id, 3, 3), none = table_.Read(id, 5, 3);
  EXPECT_THAT(first->steps, SizeIs(3));
  EXPECT_TRUE(first->more);
  ASSERT_THAT(rest->steps, SizeIs(2));
  EXPECT_EQ(rest->steps[0].step(), 4);
  EXPECT_FALSE(rest->more);
  EXPECT_THAT(none->steps, IsEmpty());
}

TEST_F(JobTableTest, GoesOnAfterStepsThatWereLostOnTheWay) {
  const std::string id = Queued();
  const std::string attempt = Running(id);
  ASSERT_THAT(Report(attempt, 0, 1), IsOk());  // of rank 1 only step 2 arrives
  ASSERT_THAT(Report(attempt, 0, 2), IsOk());
  ASSERT_THAT(Report(attempt, 1, 2), IsOk());
  const auto update = table_.Read(id, 0, 10);
  ASSERT_THAT(update->steps, SizeIs(2));  // it was done: one rank has said so, and the next one is
  EXPECT_EQ(update->steps[0].step(), 1);
  EXPECT_THAT(table_.Read(id, 2, 10)->steps, IsEmpty());
}

TEST_F(JobTableTest, FindsAJobByIdNameOrBeginning) {
  const std::string a1 = Queued("alpha"), a2 = Queued("alpha"), b = Queued("beta");
  EXPECT_EQ(*table_.Find(a1), a1);
  EXPECT_EQ(*table_.Find("alpha"), a2);
  EXPECT_EQ(*table_.Find("be"), b);
  EXPECT_THAT(table_.Find("alph"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("alpha-2, alpha-1")));
  EXPECT_THAT(table_.Find("gamma"), StatusIs(absl::StatusCode::kNotFound, HasSubstr("gamma")));
  EXPECT_THAT(table_.Find(""), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(JobTableTest, ListsInPages) {
  const std::string a = Queued("a"), b = Queued("b"), c = Queued("c");
  const auto first = table_.List(0, 2), second = table_.List(first.back().sequence(), 2);
  ASSERT_THAT(first, SizeIs(2));
  ASSERT_THAT(second, SizeIs(1));
  EXPECT_EQ(second[0].status().id(), c);
}

TEST_F(JobTableTest, ChangesNothingThatTheStoreDoesNotTake) {
  const std::string id = Queued("job", 1);
  const std::string attempt = Starting(id);
  store_.refuse = true;
  EXPECT_THAT(table_.RankStarted(attempt, 0, ""), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(table_.Cancel(id), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(table_.RankGone(attempt, 0, Done()), StatusIs(absl::StatusCode::kUnavailable));
  v1::Plan plan;
  EXPECT_THAT(table_.Add("new", SmallJob("new", 1), plan, {}), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_EQ(Status(id).state(), v1::JobStatus::STARTING);
  EXPECT_FALSE(Status(id).stopping());
  store_.refuse = false;
  EXPECT_THAT(table_.RankGone(attempt, 0, Done()), IsOk());
  EXPECT_EQ(Queued("next"), "next-2");
}

TEST_F(JobTableTest, ComesBackFromItsStore) {
  const std::string done = Queued("done", 1), failing = Queued("failing"),
                    cancelling = Queued("cancelling", 1), waits = Queued();
  ASSERT_THAT(table_.RankGone(Running(done), 0, Done()), IsOk());
  ASSERT_THAT(table_.RankGone(Running(failing), 0, {EndKind::kDeath, "dead"}), IsOk());
  Running(cancelling);
  ASSERT_THAT(table_.Cancel(cancelling), IsOk());

  JobTable again(config_, clock_, store_, changes_);
  again.Load(*store_.Load());
  EXPECT_EQ(again.Get(done)->state(), v1::JobStatus::SUCCEEDED);
  EXPECT_EQ(again.Get(waits)->state(), v1::JobStatus::QUEUED);
  EXPECT_THAT(again.TakeStops(), SizeIs(2));
  ASSERT_THAT(again.RankGone(failing + "/1", 1, {EndKind::kStopped, ""}), IsOk());
  EXPECT_EQ(again.Get(failing)->reason(), "dead");
  ASSERT_THAT(again.RankGone(cancelling + "/1", 0, {EndKind::kStopped, ""}), IsOk());
  EXPECT_EQ(again.Get(cancelling)->state(), v1::JobStatus::CANCELLED);
  v1::Plan plan;
  plan.set_degree(1);
  EXPECT_EQ(again.Add("fresh", SmallJob("fresh", 1), plan, {})->id(), "fresh-5");
  EXPECT_THAT(Invariants().Check(again.Snapshot()), IsOk());
}

TEST_F(JobTableTest, ForgetsTheOldestEndedJobsOnly) {
  config_.finished_jobs_kept = 1;
  const std::string waits = Queued("waits"), first = Queued("first"), second = Queued("second");
  ASSERT_THAT(table_.Cancel(first), IsOk());
  ASSERT_THAT(table_.Cancel(second), IsOk());
  EXPECT_THAT(table_.Get(first), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(table_.Get(second), IsOk());
  EXPECT_THAT(table_.Get(waits), IsOk());
  EXPECT_THAT(store_.Load()->jobs, SizeIs(2));
}

TEST_F(JobTableTest, TellsWatchersOfEveryChange) {
  const std::string id = Queued("job", 1);
  int notices = 0;
  const auto subscription = changes_.Subscribe(id, [&] { ++notices; });
  const std::string attempt = Running(id);
  EXPECT_EQ(notices, 2);
  ASSERT_THAT(Report(attempt, 0, 1), IsOk());
  ASSERT_THAT(table_.AppendOutput(attempt, 0, {"hello"}, 0), IsOk());
  ASSERT_THAT(table_.RankGone(attempt, 0, Done()), IsOk());
  EXPECT_EQ(notices, 5);
}

TEST_F(JobTableTest, KeepsOutputAndSaysWhatWasDropped) {
  const std::string id = Queued("job", 1);
  const std::string attempt = Running(id);
  ASSERT_THAT(table_.AppendOutput(attempt, 0, {"one"}, 0), IsOk());
  ASSERT_THAT(table_.AppendOutput(attempt, 0, {"two"}, 7), IsOk());
  EXPECT_THAT(table_.ReadLog(id, 0, std::nullopt, 1000, /*stored=*/true)->read.lines, IsEmpty());
  ASSERT_THAT(table_.Flush(), IsOk());
  const auto log = table_.ReadLog(id, 0, std::nullopt, 1000);
  ASSERT_THAT(log->read.lines, SizeIs(3));
  EXPECT_THAT(log->read.lines[1].text(), HasSubstr("7 lines dropped"));
  EXPECT_FALSE(log->terminal);
}

TEST_F(JobTableTest, ServesReadersWhileItIsWritten) {
  const std::string id = Queued("job", 1, 500);
  const std::string attempt = Running(id);
  std::thread reader([&] {
    int seen = 0;
    while (seen < 500) {
      const auto update = table_.Read(id, seen, 7);
      for (const v1::StepPoint& point : update->steps) EXPECT_EQ(point.step(), ++seen);
    }
  });
  for (int step = 1; step <= 500; ++step) ASSERT_THAT(Report(attempt, 0, step), IsOk());
  reader.join();
}

}  // namespace
}  // namespace metp
