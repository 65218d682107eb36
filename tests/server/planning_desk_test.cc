#include "server/planning_desk.h"

#include <gmock/gmock.h>

#include <atomic>
#include <future>
#include <thread>

#include "tests/support/planned_jobs.h"
#include "worker/model/plan.h"

namespace metp {
namespace {

absl::StatusOr<Choice> Ask(PlanningDesk& desk, const v1::JobSpec& job, const Workers& workers) {
  std::promise<absl::StatusOr<Choice>> answer;
  desk.Post(
      job, workers, [] { return true; },
      [&](absl::StatusOr<Choice> choice) { answer.set_value(std::move(choice)); });
  return answer.get_future().get();
}

TEST(PlanningDesk, PlansOnTheWorkersProfileAndGivesTheSameAnswerAgain) {
  PlanningDesk desk;
  const v1::JobSpec job = Llama8B(65536, {"parallel.degree=auto", "parallel.recompute=auto"});
  const auto first = Ask(desk, job, {8, Profile("h100-80g"), 8});
  ASSERT_THAT(first, IsOk());
  EXPECT_EQ(first->plan.degree(), 8);
  EXPECT_GT(first->prediction.step_seconds(), 0);
  v1::JobSpec other = job;
  other.set_name("another");
  const auto again = Ask(desk, other, {8, Profile("h100-80g"), 8});
  ASSERT_THAT(again, IsOk());
  EXPECT_EQ(again->plan.SerializeAsString(), first->plan.SerializeAsString());
  const auto fewer = Ask(desk, job, {4, Profile("h200"), 4});
  ASSERT_THAT(fewer, IsOk());
  EXPECT_EQ(fewer->plan.degree(), 4);
}

TEST(PlanningDesk, AnswersEverybodyWhenItStopsAndPlansForThoseWhoWait) {
  std::atomic<int> planned = 0, unavailable = 0, cancelled = 0;
  const auto count = [&](const absl::StatusOr<Choice>& choice) {
    planned += choice.ok() ? 1 : 0;
    unavailable += absl::IsUnavailable(choice.status()) ? 1 : 0;
    cancelled += absl::IsCancelled(choice.status()) ? 1 : 0;
  };
  PlanningDesk desk;
  const v1::JobSpec small = Llama8B(64, {"model.layers=1"});
  desk.Post(
      small, {1, Profile("h200"), 1}, [] { return false; }, count);
  ASSERT_THAT(Ask(desk, small, {1, Profile("h200"), 1}), IsOk());
  EXPECT_EQ(cancelled, 1);
  std::promise<void> stopping;
  std::thread stopper;
  // The first of three is in hand when the desk is told to stop.
  desk.Post(
      Llama8B(66, {"model.layers=1"}), {1, Profile("h200"), 1},
      [&] {
        stopper = std::thread([&] {
          stopping.set_value();
          desk.Stop();
        });
        stopping.get_future().wait();
        return true;
      },
      count);
  while (planned + unavailable == 0) std::this_thread::yield();
  stopper.join();
  desk.Post(
      Llama8B(68), {1, Profile("h200"), 1}, [] { return true; }, count);
  EXPECT_EQ(planned + unavailable, 2);
  EXPECT_GE(unavailable, 1);
}

TEST(PlanOn, SearchesWhatAUserWouldWaitFor) {
  // 576 candidates of a long sequence: seconds, not the even split.
  const auto choice =
      PlanOn(Llama8B(262144, {"parallel.degree=auto", "parallel.recompute=auto", "parallel.offload=auto"}),
             {8, Profile("h100-80g"), 8});
  ASSERT_THAT(choice, IsOk());
  EXPECT_NE(choice->prediction.profile(), "");
}

TEST(PlanOn, OffloadsIntoTheSameMemoryWhereThereIsOneOnly) {
  v1::DeviceProfile profile = Profile("h200");
  profile.set_one_memory(true);
  profile.set_host_memory_bytes(0);
  const std::vector<std::string> offload = {"parallel.offload=[activations, optimizer]", "model.layers=4",
                                            "parallel.head_groups=1", "parallel.tile_rows=2048"};
  const auto fits = PlanOn(Llama8B(4096, offload), {1, profile, 1});
  ASSERT_THAT(fits, IsOk());
  EXPECT_TRUE(fits->plan.offload_optimizer());
  const int64_t both = fits->prediction.peak_bytes() + fits->prediction.host_peak_bytes();
  profile.set_memory_bytes(profile.reserved_bytes() + both);
  EXPECT_THAT(PlanOn(Llama8B(4096, offload), {1, profile, 1}), IsOk());
  profile.set_memory_bytes(profile.reserved_bytes() + both - 1);
  EXPECT_THAT(PlanOn(Llama8B(4096, offload), {1, profile, 1}),
              StatusIs(absl::StatusCode::kResourceExhausted));
}

TEST(PlanOn, RefusesAHugeJobWithoutSimulatingItWhole) {
  // Ten thousand layers that no worker holds: a sentence, not minutes and gigabytes. It asks for no more than there is.
  v1::DeviceProfile profile = Profile("h200");
  profile.set_memory_bytes(16'000'000'000);
  const v1::JobSpec job = PlannedJob(
      "family: llama, layers: 10000, hidden: 4000, heads: 1000, ffn: 10000, head_dim: 4, vocab: 257", 64,
      {"parallel.head_groups=1"});
  const auto refused = PlanOn(job, {4, profile, 4});
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kResourceExhausted,
                                ::testing::AllOf(::testing::HasSubstr("needs at least "),
                                                 ::testing::Not(::testing::HasSubstr("parallel.degree=")))));
}

TEST(PlanOn, WhatIsTooLongToSimulateIsSplitEvenlyNotRefused) {
  // One candidate of some 50 million kernels, and memory enough.
  v1::DeviceProfile profile = Profile("h200");
  profile.set_memory_bytes(int64_t{1} << 50);
  const v1::JobSpec job = Llama8B(
      1 << 20, {"parallel.degree=64", "parallel.head_groups=8", "parallel.tile_rows=16", "model.layers=24"});
  const auto choice = PlanOn(job, {64, profile, 64});
  ASSERT_THAT(choice, IsOk());
  EXPECT_EQ(choice->prediction.profile(), "");
  EXPECT_THAT(choice->plan.notes(), ::testing::Contains(::testing::HasSubstr("too many kernels")));
}

TEST(PlanOn, SaysWhatItDidNotKnow) {
  v1::DeviceProfile profile = Profile("h100-80g");
  profile.clear_node_link();
  const auto choice = PlanOn(Llama8B(65536, {"parallel.degree=16"}), {16, profile, 15});
  ASSERT_THAT(choice, IsOk());
  EXPECT_THAT(choice->plan.notes(),
              ::testing::Contains(::testing::HasSubstr("profiles of 15 of 16 workers")));
  EXPECT_THAT(choice->plan.notes(), ::testing::Contains(::testing::HasSubstr("have not been measured yet")));
  EXPECT_THAT(PlanOn(Llama8B(1 << 20, {"parallel.degree=16", "parallel.require_full_overlap=true"}),
                     {16, profile, 16}),
              StatusIs(absl::StatusCode::kFailedPrecondition, ::testing::HasSubstr("a first job over them")));
  const auto near = PlanOn(Llama8B(65536, {"parallel.degree=8"}), {16, profile, 16});
  ASSERT_THAT(near, IsOk());
  EXPECT_THAT(near->plan.notes(), ::testing::Not(::testing::Contains(::testing::HasSubstr("measured yet"))));
}

TEST(PlanOn, SplitsEvenlyAndSaysSoWhereNothingIsKnownOrTheStepIsTooLong) {
  const auto blind = PlanOn(Llama8B(65536, {"parallel.degree=auto"}), {5, std::nullopt});
  ASSERT_THAT(blind, IsOk());
  EXPECT_EQ(blind->plan.degree(), 5);
  EXPECT_EQ(blind->prediction.profile(), "");
  EXPECT_EQ(*blind->plan.notes().rbegin(), "planned by even split: no worker has a device profile");
  const auto huge = PlanOn(Llama8B(1 << 20, {"parallel.degree=4096", "parallel.tile_rows=1"}),
                           {4096, Profile("h200"), 4096});
  ASSERT_THAT(huge, IsOk());
  EXPECT_THAT(*huge->plan.notes().rbegin(),
              testing::HasSubstr("too many kernels to simulate while you wait"));
}

TEST(PlanOn, RefusesMoreRanksThanWorkersCountingRings) {
  EXPECT_THAT(
      PlanOn(Llama8B(64, {"parallel.degree=2", "parallel.rings=3", "train.sequences_per_step=3"}),
             {5, Profile("h200"), 5}),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               "parallel.rings: found 3 rings of 2 ranks, expected at most 5 ranks, the number of registered "
               "workers"));
}

TEST(PlanOn, RefusesFullOverlapThatCannotBeChecked) {
  const std::vector<std::string> wants = {"parallel.degree=2", "parallel.require_full_overlap=true"};
  EXPECT_THAT(
      PlanOn(Llama8B(64, wants), {2, std::nullopt}),
      StatusIs(absl::StatusCode::kFailedPrecondition, testing::HasSubstr("no worker has a device profile")));
  EXPECT_THAT(PlanOn(Llama8B(64, wants), {2, Profile("h200"), 2}),
              StatusIs(absl::StatusCode::kFailedPrecondition, testing::HasSubstr("does not hide fully")));
  EXPECT_THAT(PlanOn(Llama8B(65536, wants), {2, Profile("h200"), 2}), IsOk());
}

}  // namespace
}  // namespace metp
