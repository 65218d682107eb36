#include "server/hang_watch.h"

#include <gmock/gmock.h>

namespace metp {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class HangWatchTest : public ::testing::Test {
 protected:
  HangWatchTest() {
    config_.hang_factor = 10;
    config_.hang_floor = seconds(5);
    config_.start_timeout = seconds(100);
    watch_.Begin("a/1", now_);
  }
  std::vector<HangWatch::Hang> After(Clock::Duration time) { return watch_.Take(now_ += time); }
  void Step(int step, double took) { watch_.Step("a/1", step, took, now_); }

  CoordinatorConfig config_;
  HangWatch watch_{config_};
  Clock::Time now_{};
};

TEST_F(HangWatchTest, GivesTheFirstStepTheTimeOfAStart) {
  EXPECT_EQ(watch_.NextDeadline(), now_ + seconds(100) + milliseconds(1));
  EXPECT_THAT(After(seconds(100)), IsEmpty());
  const auto hangs = After(milliseconds(1));
  ASSERT_THAT(hangs, SizeIs(1));
  EXPECT_EQ(hangs[0].attempt, "a/1");
  EXPECT_THAT(hangs[0].sentence, HasSubstr("no step for 100 s since it was started"));
  EXPECT_THAT(After(seconds(1000)), IsEmpty());  // told once
}

TEST_F(HangWatchTest, LearnsFromTheLongestOfTheLastSteps) {
  Step(1, 3);
  EXPECT_THAT(After(seconds(30)), IsEmpty());
  for (int step = 2; step <= 20; ++step) Step(step, 1);
  EXPECT_THAT(After(seconds(30)), IsEmpty());  // the long one is among the last twenty
  Step(21, 1);
  const auto hangs = After(seconds(11));
  ASSERT_THAT(hangs, SizeIs(1));
  EXPECT_THAT(hangs[0].sentence, HasSubstr("no step for 11 s after step 21, where 10 s are allowed"));
}

TEST_F(HangWatchTest, IsNeverHastierThanItsFloor) {
  Step(1, 0.001);
  EXPECT_THAT(After(seconds(5)), IsEmpty());
  EXPECT_THAT(After(milliseconds(1)), SizeIs(1));
}

TEST_F(HangWatchTest, CountsAStepOnceHoweverManyRanksReportIt) {
  Step(1, 1);
  EXPECT_THAT(After(seconds(9)), IsEmpty());
  Step(1, 1);  // a late rank
  EXPECT_THAT(After(seconds(2)), SizeIs(1));
}

TEST_F(HangWatchTest, WaitsLongerForADisk) {
  Step(1, 1);
  watch_.Waits("a/1", now_);
  EXPECT_THAT(After(seconds(100)), IsEmpty());
  Step(2, 1);
  EXPECT_THAT(After(seconds(11)), SizeIs(1));
}

TEST_F(HangWatchTest, BeginsAnewWhenItIsExcused) {
  Step(1, 1);
  now_ += seconds(9);
  watch_.Excuse("a/1", now_);
  EXPECT_THAT(After(seconds(9)), IsEmpty());
  watch_.ExcuseAll(now_);
  EXPECT_THAT(After(seconds(9)), IsEmpty());
  EXPECT_THAT(After(seconds(2)), SizeIs(1));
}

TEST_F(HangWatchTest, KnowsWhoHasStepped) {
  EXPECT_FALSE(watch_.SteppedSince("a/1", now_ - seconds(1)));
  Step(1, 1);
  EXPECT_TRUE(watch_.SteppedSince("a/1", now_ - seconds(1)));
  EXPECT_FALSE(watch_.SteppedSince("a/1", now_));
  EXPECT_FALSE(watch_.SteppedSince("b/1", now_ - seconds(1)));
}

TEST_F(HangWatchTest, ForgetsWhatHasEnded) {
  watch_.Forget("a/1");
  Step(1, 1);
  EXPECT_THAT(After(seconds(1000)), IsEmpty());
  EXPECT_EQ(watch_.NextDeadline(), std::nullopt);
}

}  // namespace
}  // namespace metp
