// The search over rings and over what lives in host memory.

#include <gmock/gmock.h>

#include <algorithm>
#include <set>

#include "server/planner/candidates.h"
#include "server/planner/peers.h"
#include "server/planner/planner.h"
#include "tests/support/planned_jobs.h"
#include "worker/model/config.h"
#include "worker/model/plan.h"

namespace metp {
namespace {

using ::testing::HasSubstr;

TEST(Candidates, RingsShareOutTheMicroBatchesAndFindDevices) {
  const v1::JobSpec job =
      Llama8B(4096, {"parallel.degree=auto", "parallel.rings=auto", "train.sequences_per_step=12"});
  std::set<std::pair<int, int>> cuts;  // degree, rings
  for (const v1::Plan& plan : Candidates(job, Profile("h200"), 16)) {
    EXPECT_LE(RanksOf(plan), 16);
    EXPECT_EQ(12 % plan.rings(), 0);
    cuts.emplace(plan.degree(), plan.rings());
  }
  EXPECT_EQ(cuts, (std::set<std::pair<int, int>>{
                      {1, 1}, {1, 12}, {2, 1}, {2, 6}, {4, 1}, {4, 4}, {8, 1}, {8, 2}, {16, 1}}));
  const v1::JobSpec fixed =
      Llama8B(4096, {"parallel.degree=auto", "parallel.rings=3", "train.sequences_per_step=12"});
  for (const v1::Plan& plan : Candidates(fixed, Profile("h200"), 16)) {
    EXPECT_EQ(plan.rings(), 3);
    EXPECT_LE(plan.degree(), 5);
  }
}

TEST(Candidates, OffloadIsOpenOnlyWhereThereIsHostMemory) {
  const v1::JobSpec job = Llama8B(4096, {"parallel.degree=8", "parallel.offload=auto"});
  v1::DeviceProfile profile = Profile("h200");
  const size_t with = Candidates(job, profile, 8).size();
  profile.set_host_memory_bytes(0);
  EXPECT_EQ(with, 4 * Candidates(job, profile, 8).size());
  const v1::JobSpec both = Llama8B(4096, {"parallel.degree=8", "parallel.offload=[optimizer, activations]"});
  for (const v1::Plan& plan : Candidates(both, profile, 8))
    EXPECT_TRUE(plan.offload_activations() && plan.offload_optimizer());
}

TEST(Plan, RingsHalveTheStepAndShareTheOptimizerState) {
  const auto predicted = [](int rings) {
    const v1::JobSpec job = Llama8B(32768, {"parallel.degree=8", "train.sequences_per_step=8",
                                            "parallel.rings=" + std::to_string(rings)});
    const auto prediction = Predict(job, ResolvePlan(job), Profile("h100-80g"));
    EXPECT_THAT(prediction, IsOk());
    return *prediction;
  };
  const v1::Prediction one = predicted(1), two = predicted(2), four = predicted(4);
  EXPECT_LT(two.step_seconds(), 0.55 * one.step_seconds());
  EXPECT_LT(four.step_seconds(), 0.55 * two.step_seconds());
  EXPECT_NEAR(two.mfu(), one.mfu(), 0.05 * one.mfu());  // twice the devices
  const auto optimizer = [](const v1::Prediction& p) {
    return static_cast<double>(p.peak_bytes_by_category().at("optimizer"));
  };
  EXPECT_NEAR(optimizer(two), optimizer(one) / 2, 0.01 * optimizer(one));
  EXPECT_NEAR(optimizer(four), optimizer(one) / 4, 0.01 * optimizer(one));
  EXPECT_EQ(two.peak_bytes_by_category().at("weights"), one.peak_bytes_by_category().at("weights"));
}

TEST(Plan, OneDeviceHoldsMoreThanAMillionTokensOfEightBillionWeightsWithTheHostsHelp) {
  const v1::JobSpec job =
      Llama8B(4096, {"parallel.degree=1", "parallel.recompute=auto", "parallel.offload=auto"});
  const auto longest = MaxSequence(job, Profile("h200"), 1);
  ASSERT_THAT(longest, IsOk());
  EXPECT_GT(longest->tokens, 1'200'000);
  EXPECT_TRUE(longest->plan.offload_activations() && longest->plan.offload_optimizer());
}

TEST(Plan, AHostsMemoryIsSharedByTheJobsDevicesOnIt) {
  const v1::DeviceProfile profile = Profile("h100-80g");
  for (const auto& [devices, sharing] : {std::pair{1, 1}, {4, 4}, {8, 8}, {64, 8}}) {
    EXPECT_EQ(ShareOfHost(profile, devices).memory_bytes, profile.host_memory_bytes() / sharing);
    EXPECT_EQ(ShareOfHost(profile, devices).bytes_per_second, profile.host_bytes_per_second() / sharing);
  }
  const v1::JobSpec job = Llama8B(4096, {"parallel.degree=8", "parallel.offload=optimizer"});
  const auto prediction = Predict(job, ResolvePlan(job), profile);
  ASSERT_THAT(prediction, IsOk());
  EXPECT_EQ(prediction->host_usable_bytes(), profile.host_memory_bytes() / 8);
  // Masters and moments of an eighth, and two gradients under way with their 16-bit weights.
  const double state = 12.0 * MatrixParameters(MakeModelConfig(job.model())) / 8;
  EXPECT_NEAR(static_cast<double>(prediction->host_peak_bytes()), state + 2 * 6.0 * (4 << 20), 0.001 * state);
  EXPECT_GT(prediction->host().update_seconds(), 0);
  EXPECT_GE(prediction->host().exposed_seconds(), prediction->host().update_seconds());
}

TEST(Refusal, OffersToOffloadBoth) {
  // More than 141 GB with 16 bytes of each weight on the device, and with the activations alone on the host.
  const auto refused =
      ChoosePlan(Llama8B(65536, {"parallel.degree=1", "parallel.recompute=full"}), Profile("h200"), 1);
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kResourceExhausted,
                                HasSubstr("it fits with parallel.offload=optimizer (")));
  EXPECT_THAT(
      ChoosePlan(Llama8B(1 << 20, {"parallel.degree=1", "parallel.recompute=full"}), Profile("h200"), 1),
      StatusIs(absl::StatusCode::kResourceExhausted,
               HasSubstr("it fits with parallel.offload=[activations, optimizer] (")));
}

TEST(Peers, OptimizerStateAtEqualMeansGoesToTheHostToo) {
  const v1::JobSpec job = Llama8B(65536, {"parallel.degree=8", "parallel.recompute=full"});
  v1::Plan plan = ResolvePlan(job);
  const auto without = ComparePeers(job, plan, Profile("h100-80g"));
  plan.set_offload_optimizer(true);
  const auto with = ComparePeers(job, plan, Profile("h100-80g"));
  ASSERT_EQ(with.size(), without.size());
  for (size_t i = 0; i < with.size(); ++i) {
    const int64_t moved = without[i].bytes_by_part.at("state") - with[i].bytes_by_part.at("state");
    if (!with[i].equal_means) {
      EXPECT_EQ(moved, 0);
      continue;
    }
    EXPECT_EQ(with[i].host_bytes, moved) << with[i].method;
    EXPECT_EQ(moved, without[i].bytes_by_part.at("state") / 18 * 12) << with[i].method;
  }
}

}  // namespace
}  // namespace metp
