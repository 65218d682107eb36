#include "server/planning_desk.h"

#include <gmock/gmock.h>

#include <future>

#include "tests/support/planned_jobs.h"
#include "worker/model/plan.h"

namespace metp {
namespace {

absl::StatusOr<Choice> Ask(PlanningDesk& desk, const v1::JobSpec& job, const Workers& workers) {
  std::promise<absl::StatusOr<Choice>> answer;
  desk.Post(job, workers, [&](absl::StatusOr<Choice> choice) { answer.set_value(std::move(choice)); });
  return answer.get_future().get();
}

TEST(PlanningDesk, PlansOnTheWorkersProfileAndGivesTheSameAnswerAgain) {
  PlanningDesk desk;
  const v1::JobSpec job = Llama8B(65536, {"parallel.degree=auto", "parallel.recompute=auto"});
  const auto first = Ask(desk, job, {8, Profile("h100-80g")});
  ASSERT_THAT(first, IsOk());
  EXPECT_EQ(first->plan.degree(), 8);
  EXPECT_GT(first->prediction.step_seconds(), 0);
  v1::JobSpec other = job;
  other.set_name("another");
  const auto again = Ask(desk, other, {8, Profile("h100-80g")});
  ASSERT_THAT(again, IsOk());
  EXPECT_EQ(again->plan.SerializeAsString(), first->plan.SerializeAsString());
  const auto fewer = Ask(desk, job, {4, Profile("h200")});
  ASSERT_THAT(fewer, IsOk());
  EXPECT_EQ(fewer->plan.degree(), 4);
}

TEST(PlanningDesk, AnswersEverythingBeforeItStopsAndRefusesWhatComesLater) {
  PlanningDesk desk;
  int answered = 0;
  for (int i = 0; i < 20; ++i) {
    desk.Post(Llama8B(64 + 2 * i, {"model.layers=1"}), {1, Profile("h200")},
              [&](const absl::StatusOr<Choice>& choice) { answered += choice.ok() ? 1 : 0; });
  }
  desk.Stop();
  EXPECT_EQ(answered, 20);
  EXPECT_THAT(Ask(desk, Llama8B(64), {1, std::nullopt}), StatusIs(absl::StatusCode::kUnavailable));
}

TEST(PlanOn, SplitsEvenlyAndSaysSoWhereNothingIsKnownOrTheStepIsTooLong) {
  const auto blind = PlanOn(Llama8B(65536, {"parallel.degree=auto"}), {5, std::nullopt});
  ASSERT_THAT(blind, IsOk());
  EXPECT_EQ(blind->plan.degree(), 5);
  EXPECT_EQ(blind->prediction.profile(), "");
  EXPECT_EQ(*blind->plan.notes().rbegin(), "planned by even split: no worker has a device profile");
  const auto huge =
      PlanOn(Llama8B(1 << 20, {"parallel.degree=4096", "parallel.tile_rows=1"}), {4096, Profile("h200")});
  ASSERT_THAT(huge, IsOk());
  EXPECT_THAT(*huge->plan.notes().rbegin(),
              testing::HasSubstr("too many kernels to simulate while you wait"));
}

TEST(PlanOn, RefusesMoreRanksThanWorkersCountingRings) {
  EXPECT_THAT(
      PlanOn(Llama8B(64, {"parallel.degree=2", "parallel.rings=3", "train.sequences_per_step=3"}),
             {5, Profile("h200")}),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               "parallel.rings: found 3 rings of 2 ranks, expected at most 5 ranks, the number of registered "
               "workers"));
}

TEST(PlanOn, RefusesFullOverlapThatCannotBeChecked) {
  const std::vector<std::string> wants = {"parallel.degree=2", "parallel.require_full_overlap=true"};
  EXPECT_THAT(
      PlanOn(Llama8B(64, wants), {2, std::nullopt}),
      StatusIs(absl::StatusCode::kFailedPrecondition, testing::HasSubstr("no worker has a device profile")));
  EXPECT_THAT(PlanOn(Llama8B(64, wants), {2, Profile("h200")}),
              StatusIs(absl::StatusCode::kFailedPrecondition, testing::HasSubstr("does not hide fully")));
  EXPECT_THAT(PlanOn(Llama8B(65536, wants), {2, Profile("h200")}), IsOk());
}

}  // namespace
}  // namespace metp
