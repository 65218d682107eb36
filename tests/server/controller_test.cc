#include "server/controller.h"

#include <gmock/gmock.h>

#include <map>

#include "proto/support/job_file.h"
#include "server/invariants.h"
#include "server/store/memory_store.h"
#include "tests/support/fake_clock.h"
#include "tests/support/jobs.h"
#include "tests/support/recording_link.h"
#include "tests/support/status_matchers.h"

namespace metp {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class FaultyStore : public MemoryStore {
 public:
  absl::Status Put(const v1::JobRecord& record) override {
    return refuse ? absl::UnavailableError("disk full") : MemoryStore::Put(record);
  }
  bool refuse = false;
};

/// A worker daemon as the controller sees it.
struct Worker {
  std::string name, incarnation = "first";
  int64_t memory_bytes = 0;
  std::shared_ptr<RecordingLink> link;
  Registry::Session session = 0;
  int64_t sequence = 0;
};

class ControllerTest : public ::testing::Test {
 protected:
  void TearDown() override { Check(); }
  void Check() { EXPECT_THAT(invariants_.Check(jobs_.Snapshot()), IsOk()); }

  absl::Status Connect(Worker& worker, const std::vector<std::pair<std::string, int>>& ranks = {}) {
    v1::WorkerHello hello;
    hello.set_name(worker.name);
    hello.set_incarnation(worker.incarnation);
    hello.set_memory_bytes(worker.memory_bytes);
    for (const auto& [attempt, rank] : ranks) {
      v1::RankKey& key = *hello.add_ranks();
      key.set_attempt(attempt);
      key.set_rank(rank);
    }
    worker.link = std::make_shared<RecordingLink>();
    const auto session = controller_.Connect(hello, worker.link);
    if (session.ok()) worker.session = *session;
    controller_.Tick();
    Check();
    return session.status();
  }
  std::vector<Worker> Workers(int count) {
    std::vector<Worker> workers(count);
    for (int i = 0; i < count; ++i) {
      workers[i].name = "cpu-" + std::to_string(i);
      EXPECT_THAT(Connect(workers[i]), IsOk());
      workers[i].link->Take();
    }
    return workers;
  }
  absl::Status Say(Worker& worker, v1::WorkerEvent event, const std::string& attempt, int rank) {
    event.set_sequence(++worker.sequence);
    event.set_attempt(attempt);
    event.set_rank(rank);
    return Repeat(worker, event);
  }
  absl::Status Repeat(Worker& worker, const v1::WorkerEvent& event) {
    v1::FromWorker message;
    *message.mutable_events()->add_events() = event;
    const absl::Status status = controller_.Receive(worker.session, message);
    controller_.Tick();
    Check();
    return status;
  }
  static v1::WorkerEvent Started() {
    v1::WorkerEvent event;
    event.mutable_started()->set_description("runs");
    return event;
  }
  static v1::WorkerEvent Ended(bool done, const std::string& how = "exited with code 0",
                               bool stopped = false) {
    v1::WorkerEvent event;
    if (done) event.mutable_ended()->mutable_result();
    event.mutable_ended()->set_clean(done);
    event.mutable_ended()->set_how(how);
    event.mutable_ended()->set_stopped(stopped);
    return event;
  }
  v1::JobStatus Submit(int degree, const std::string& name = "job") {
    const auto status = controller_.Submit("request-" + std::to_string(++requests_), SmallJob(name, degree));
    EXPECT_THAT(status, IsOk());
    controller_.Tick();
    Check();
    return *jobs_.Get(status->id());
  }
  v1::JobStatus::State State(const std::string& id) { return jobs_.Get(id)->state(); }
  /// Messages of one kind that the worker got since it was last asked.
  static std::vector<v1::ToWorker> Got(Worker& worker, v1::ToWorker::KindCase kind) {
    std::vector<v1::ToWorker> got;
    for (v1::ToWorker& message : worker.link->Take()) {
      if (message.kind_case() == kind) got.push_back(std::move(message));
    }
    return got;
  }
  void Alive(std::vector<Worker>& workers) {
    v1::FromWorker heartbeat;
    heartbeat.mutable_heartbeat();
    for (Worker& worker : workers) controller_.Receive(worker.session, heartbeat).IgnoreError();
  }

  CoordinatorConfig config_;
  FakeClock clock_;
  FaultyStore store_;
  ChangeHub changes_;
  JobTable jobs_{config_, clock_, store_, changes_};
  Registry workers_{config_, clock_};
  Controller controller_{jobs_, workers_};
  Invariants invariants_;
  int requests_ = 0;
};

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
  const auto first = controller_.Submit("r", SmallJob("a", 1)),
             again = controller_.Submit("r", SmallJob("a", 1));
  ASSERT_THAT(again, IsOk());
  EXPECT_EQ(first->id(), again->id());
  EXPECT_THAT(jobs_.Snapshot(), SizeIs(1));
  EXPECT_THAT(controller_.Submit("r", SmallJob("b", 1)), StatusIs(absl::StatusCode::kAlreadyExists));
}

TEST_F(ControllerTest, RefusesWhatTheSmallestWorkerHasNoRoomFor) {
  Worker large, small;
  large.name = "cpu-0";
  small.name = "cpu-1";
  large.memory_bytes = 100'000'000'000;
  small.memory_bytes = 2'000'000'000;
  EXPECT_THAT(Connect(large), IsOk());
  EXPECT_THAT(Connect(small), IsOk());
  v1::JobSpec job = SmallJob("a", 2);
  job.mutable_model()->set_layers(10);
  job.mutable_model()->set_hidden(4096);
  job.mutable_model()->set_ffn(16384);  // 16 bytes of 12.6 million and more elements a layer
  EXPECT_THAT(
      controller_.Submit("weights", job),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               testing::StartsWith(
                   "parallel.degree: found 2, with which each rank needs at least 21.5 GB; "
                   "of the 2 workers with most memory the smallest has 2.0 GB; expected more ranks, ")));
  job = SmallJob("b", 2);
  job.mutable_data()->set_sequence_length(1 << 24);
  EXPECT_THAT(controller_.Submit("tokens", job),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("the smallest has 2.0 GB")));
  job.mutable_data()->set_sequence_length(1 << 16);
  EXPECT_THAT(controller_.Submit("small", job), IsOk());
  job.mutable_data()->set_sequence_length(1 << 24);
  job.mutable_parallel()->set_degree(1);
  EXPECT_THAT(controller_.Submit("for the large one", job), IsOk());
  job.mutable_train()->set_sequences_per_step(1 << 30);  // answered at once all the same
  EXPECT_THAT(controller_.Submit("for a long time", job), IsOk());
}

TEST_F(ControllerTest, PlansAutomaticDegreeOverAllWorkers) {
  Workers(3);
  v1::JobSpec job = SmallJob("a", 1);
  job.mutable_parallel()->set_degree(0);
  const auto status = controller_.Submit("r", job);
  ASSERT_THAT(status, IsOk());
  EXPECT_EQ(status->plan().degree(), 3);
}

TEST_F(ControllerTest, RefusesMoreRanksThanWorkersAndNamesBoth) {
  Workers(4);
  EXPECT_THAT(controller_.Submit("r", SmallJob("a", 8)),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "parallel.degree: found 8, expected at most 4, the number of registered workers"));
}

TEST_F(ControllerTest, RefusesAJobThatBreaksARule) {
  Workers(1);
  v1::JobSpec job = SmallJob("a", 1);
  job.mutable_train()->set_steps(0);
  EXPECT_THAT(controller_.Submit("r", job),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("train.steps")));
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
  auto workers = Workers(1);
  const v1::JobStatus job = Submit(1);
  clock_.Advance(config_.lease + std::chrono::milliseconds(1));
  controller_.Tick();
  EXPECT_EQ(State(job.id()), v1::JobStatus::FAILED);
  v1::FromWorker heartbeat;
  heartbeat.mutable_heartbeat();
  EXPECT_THAT(controller_.Receive(workers[0].session, heartbeat),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  ASSERT_THAT(Connect(workers[0], {{job.attempt(), 0}}), IsOk());
  EXPECT_THAT(Got(workers[0], v1::ToWorker::kStop), SizeIs(1));
  const v1::JobStatus next = Submit(1);
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
  EXPECT_EQ(workers_.Acknowledged(workers[0].session), 0);
  store_.refuse = false;
  --workers[0].sequence;
  EXPECT_THAT(Say(workers[0], Ended(true), job.attempt(), 0), IsOk());
  EXPECT_EQ(State(job.id()), v1::JobStatus::SUCCEEDED);
  EXPECT_EQ(workers_.Acknowledged(workers[0].session), 1);
}

TEST_F(ControllerTest, LetsAWorkerLeave) {
  auto workers = Workers(1);
  const v1::JobStatus job = Submit(1);
  v1::FromWorker leave;
  leave.mutable_leave();
  ASSERT_THAT(controller_.Receive(workers[0].session, leave), IsOk());
  EXPECT_EQ(State(job.id()), v1::JobStatus::FAILED);
  EXPECT_THAT(workers_.List(), IsEmpty());
}

}  // namespace
}  // namespace metp
