#include "server/registry.h"

#include <gmock/gmock.h>

#include "tests/support/fake_clock.h"
#include "tests/support/recording_link.h"
#include "tests/support/status_matchers.h"

namespace metp {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class RegistryTest : public ::testing::Test {
 protected:
  absl::StatusOr<Registry::Connected> Hello(const std::string& name, const std::string& incarnation = "i1") {
    v1::WorkerHello hello;
    hello.set_name(name);
    hello.set_incarnation(incarnation);
    link_ = std::make_shared<RecordingLink>();
    return registry_.Connect(hello, link_);
  }
  v1::WorkerStatus::State StateOf(const std::string& name) {
    for (const v1::WorkerStatus& worker : registry_.List()) {
      if (worker.name() == name) return worker.state();
    }
    return v1::WorkerStatus::STATE_UNSPECIFIED;
  }
  static constexpr std::chrono::milliseconds kMoment{1};

  CoordinatorConfig config_;
  FakeClock clock_;
  Registry registry_{config_, clock_};
  std::shared_ptr<RecordingLink> link_;
};

TEST_F(RegistryTest, TakesAWorkerInAsReady) {
  ASSERT_THAT(Hello("cpu-0"), IsOk());
  EXPECT_EQ(StateOf("cpu-0"), v1::WorkerStatus::READY);
  EXPECT_THAT(registry_.Schedulable(v1::JobSpec::DEVICE_CPU), ElementsAre("cpu-0"));
  EXPECT_THAT(Hello(""), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Hello("x", ""), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(RegistryTest, SuspectsSilenceAndForgivesIt) {
  const auto session = Hello("cpu-0")->session;
  clock_.Advance(config_.suspect_after);
  EXPECT_THAT(registry_.Expire(), IsEmpty());
  EXPECT_EQ(StateOf("cpu-0"), v1::WorkerStatus::READY);
  clock_.Advance(kMoment);
  EXPECT_THAT(registry_.Expire(), IsEmpty());
  EXPECT_EQ(StateOf("cpu-0"), v1::WorkerStatus::SUSPECT);
  EXPECT_THAT(registry_.Schedulable(v1::JobSpec::DEVICE_CPU), IsEmpty());
  EXPECT_EQ(registry_.registered(v1::JobSpec::DEVICE_CPU), 1);
  EXPECT_TRUE(registry_.Heard(session));
  EXPECT_EQ(StateOf("cpu-0"), v1::WorkerStatus::READY);
}

TEST_F(RegistryTest, LosesAWorkerOnceWhenItsLeaseIsOver) {
  const auto session = Hello("cpu-0")->session;
  const auto link = link_;
  clock_.Advance(config_.lease);
  EXPECT_THAT(registry_.Expire(), IsEmpty());
  clock_.Advance(kMoment);
  const auto lost = registry_.Expire();
  ASSERT_THAT(lost, SizeIs(1));
  EXPECT_EQ(lost[0].first, "cpu-0");
  EXPECT_THAT(lost[0].second, HasSubstr("not heard for 10 s"));
  EXPECT_THAT(registry_.Expire(), IsEmpty());
  EXPECT_TRUE(link->closed());
  EXPECT_FALSE(registry_.Heard(session));
  EXPECT_EQ(registry_.registered(v1::JobSpec::DEVICE_CPU), 0);
  clock_.Advance(config_.lost_worker_kept);
  registry_.Expire();
  EXPECT_THAT(registry_.List(), IsEmpty());
}

TEST_F(RegistryTest, KnowsWhenToLookNext) {
  EXPECT_FALSE(registry_.NextDeadline().has_value());
  Hello("cpu-0").IgnoreError();
  for (const v1::WorkerStatus::State expected : {v1::WorkerStatus::SUSPECT, v1::WorkerStatus::LOST}) {
    clock_.Advance(*registry_.NextDeadline() - clock_.Now());
    registry_.Expire();
    EXPECT_EQ(StateOf("cpu-0"), expected);
  }
}

TEST_F(RegistryTest, SuspectsABrokenConnectionAtOnce) {
  const auto session = Hello("cpu-0")->session;
  registry_.Disconnect(session);
  EXPECT_EQ(StateOf("cpu-0"), v1::WorkerStatus::SUSPECT);
  EXPECT_THAT(registry_.Schedulable(v1::JobSpec::DEVICE_CPU), IsEmpty());
}

TEST_F(RegistryTest, TellsAReconnectFromARestart) {
  const auto first = Hello("cpu-0");
  registry_.Take(first->session, 7);
  registry_.Acknowledge(true);
  registry_.Disconnect(first->session);
  const auto second = Hello("cpu-0");
  ASSERT_THAT(second, IsOk());
  EXPECT_FALSE(second->restarted);
  EXPECT_EQ(second->acknowledged, 7);
  EXPECT_FALSE(registry_.Heard(first->session));
  registry_.Disconnect(second->session);
  const auto third = Hello("cpu-0", "i2");
  ASSERT_THAT(third, IsOk());
  EXPECT_TRUE(third->restarted);
  EXPECT_EQ(third->acknowledged, 0);
}

TEST_F(RegistryTest, HandsOverAHalfOpenSessionOfTheSameDaemon) {
  const auto first = Hello("cpu-0");
  const auto old_link = link_;
  const auto second = Hello("cpu-0");
  EXPECT_EQ(second->replaced, old_link);
  registry_.Disconnect(first->session);  // the old call ends late
  EXPECT_EQ(StateOf("cpu-0"), v1::WorkerStatus::READY);
}

TEST_F(RegistryTest, RefusesASecondWorkerOfTheSameName) {
  Hello("cpu-0").IgnoreError();
  EXPECT_THAT(Hello("cpu-0", "other"), StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("--name")));
}

TEST_F(RegistryTest, GivesNoRanksToAWorkerThatStillRunsAStaleOne) {
  Hello("cpu-0").IgnoreError();
  EXPECT_TRUE(registry_.AddStale("cpu-0", {"job-1/1", 2}));
  EXPECT_FALSE(registry_.AddStale("cpu-0", {"job-1/1", 2}));
  EXPECT_THAT(registry_.Schedulable(v1::JobSpec::DEVICE_CPU), IsEmpty());
  registry_.ClearStale("cpu-0", {"job-1/1", 2});
  EXPECT_THAT(registry_.Schedulable(v1::JobSpec::DEVICE_CPU), ElementsAre("cpu-0"));
}

TEST_F(RegistryTest, OrdersNamesByTheirNumbers) {
  for (const char* name : {"cpu-10", "cpu-2", "cpu-1", "a", "cpu-02"}) Hello(name).IgnoreError();
  EXPECT_THAT(registry_.Schedulable(v1::JobSpec::DEVICE_CPU),
              ElementsAre("a", "cpu-1", "cpu-02", "cpu-2", "cpu-10"));
}

TEST_F(RegistryTest, SendsToTheCurrentSessionOnly) {
  const auto session = Hello("cpu-0")->session;
  const auto link = link_;
  registry_.Send("cpu-0", v1::ToWorker());
  registry_.Send("nobody", v1::ToWorker());
  registry_.Disconnect(session);
  registry_.Send("cpu-0", v1::ToWorker());
  EXPECT_THAT(link->sent(), SizeIs(1));
}

TEST_F(RegistryTest, ForgetsAWorkerThatLeft) {
  const auto session = Hello("cpu-0")->session;
  registry_.Remove(session);
  EXPECT_THAT(registry_.List(), IsEmpty());
  EXPECT_FALSE(registry_.Heard(session));
}

}  // namespace
}  // namespace metp
