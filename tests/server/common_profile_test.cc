#include "server/common_profile.h"

#include <gtest/gtest.h>

#include "tests/support/planned_jobs.h"

namespace metp {
namespace {

v1::WorkerStatus Worker(const std::string& node, const std::string& profile) {
  v1::WorkerStatus worker;
  worker.set_state(v1::WorkerStatus::READY);
  worker.set_node(node);
  if (!profile.empty()) *worker.mutable_profile() = Profile(profile);
  return worker;
}

TEST(CommonProfile, IsThereWhenOneWorkerHasOne) {
  EXPECT_FALSE(CommonProfile({}).has_value());
  EXPECT_FALSE(CommonProfile({Worker("a", "")}).has_value());
  EXPECT_TRUE(CommonProfile({Worker("a", ""), Worker("a", "h200")}).has_value());
  v1::WorkerStatus lost = Worker("a", "h200");
  lost.set_state(v1::WorkerStatus::LOST);
  EXPECT_FALSE(CommonProfile({lost}).has_value());
}

TEST(CommonProfile, IsTheSlowestOfEachFigureAndCountsTheWorkersOfANode) {
  const v1::DeviceProfile slow = Profile("a100-80g"), fast = Profile("h200");
  v1::WorkerStatus odd = Worker("b", "h200");
  odd.mutable_profile()->mutable_link()->set_bytes_per_second(1e9);
  odd.mutable_profile()->mutable_link()->set_latency_seconds(1);
  const auto common = CommonProfile({Worker("a", "h200"), Worker("a", "a100-80g"), Worker("a", "h200"), odd});
  ASSERT_TRUE(common.has_value());
  EXPECT_EQ(common->devices_per_node(), 3);
  EXPECT_EQ(common->memory_bytes() - common->reserved_bytes(), UsableBytes(slow));
  EXPECT_EQ(common->gemm().flops_per_second(),
            std::min(slow.gemm().flops_per_second(), fast.gemm().flops_per_second()));
  EXPECT_EQ(common->link().bytes_per_second(), 1e9);
  EXPECT_EQ(common->link().latency_seconds(), 1);
  EXPECT_EQ(common->peak_flops_per_second(), slow.peak_flops_per_second());
  v1::WorkerStatus wide = Worker("c", "a100-80g");
  wide.mutable_profile()->set_precision(v1::DeviceProfile::PRECISION_FP32);
  for (const auto& workers : {std::vector{wide, odd}, std::vector{odd, wide}})
    EXPECT_EQ(CommonProfile(workers)->precision(), v1::DeviceProfile::PRECISION_FP32);
  v1::WorkerStatus near = Worker("d", "h200");
  near.mutable_profile()->clear_node_link();
  EXPECT_FALSE(CommonProfile({near})->has_node_link());
  for (const auto& workers : {std::vector{near, odd}, std::vector{odd, near}})
    EXPECT_EQ(CommonProfile(workers)->node_link().bytes_per_second(), fast.node_link().bytes_per_second());
  // Whatever the order.
  EXPECT_EQ(common->SerializeAsString(),
            CommonProfile({odd, Worker("a", "h200"), Worker("a", "a100-80g"), Worker("a", "h200")})
                ->SerializeAsString());
}

}  // namespace
}  // namespace metp
