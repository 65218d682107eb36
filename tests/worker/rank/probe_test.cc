// The probe's arithmetic, and that what it measures is a whole and usable profile. How fast this machine is, no test
// can know.

#include "worker/rank/probe.h"

#include <gtest/gtest.h>

#include "worker/backend/sim/profile.h"

namespace metp {
namespace {

TEST(FitRates, FindsTheRatesThatMadeTheSamples) {
  std::vector<Sample> samples;
  for (double flops : {1e9, 2e9, 5e8}) {
    for (double bytes : {1e6, 3e7}) samples.push_back({flops, bytes, flops / 4e10 + bytes / 2e9});
  }
  const Fit fit = FitRates(samples);
  EXPECT_NEAR(1 / fit.a, 4e10, 1e4);
  EXPECT_NEAR(1 / fit.b, 2e9, 1e3);
}

TEST(FitRates, GivesNoNegativeRate) {
  // Slower by more than the products explain only where there are fewer bytes: the bytes explain nothing.
  const Fit fit = FitRates({{1e9, 9e6, 0.02}, {1e9, 1e6, 0.03}, {2e9, 1e6, 0.05}});
  EXPECT_GT(fit.a, 0);
  EXPECT_EQ(fit.b, 0);
}

TEST(Probe, MeasuresACompleteProfile) {
  for (int ranks : {1, 2}) {
    const v1::DeviceProfile profile = ProbeThisMachine(ranks, 1);
    const auto again = ParseProfile(ProfileToYaml(profile), "measured");
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(again->SerializeAsString(), profile.SerializeAsString());
    EXPECT_EQ(profile.precision(), v1::DeviceProfile::PRECISION_FP32);
    EXPECT_EQ(profile.devices_per_node(), ranks);
  }
}

TEST(Probe, TakesFirstLinksOfAGpuFromItsProductOrItsHost) {
  v1::DeviceProfile profile;
  profile.mutable_host_link()->set_bytes_per_second(5e9);
  EXPECT_EQ(SetFirstLinks("NVIDIA T4", profile), "taken to be like that to host memory");
  EXPECT_EQ(profile.link().bytes_per_second(), 5e9);
  EXPECT_EQ(SetFirstLinks("NVIDIA H200", profile), "those of the built-in profile h200");
  const v1::DeviceProfile h200 = *LoadProfile("h200");
  EXPECT_EQ(profile.link().SerializeAsString(), h200.link().SerializeAsString());
  EXPECT_EQ(profile.node_link().SerializeAsString(), h200.node_link().SerializeAsString());
}

TEST(Probe, MeasuresLoopbackLinksWhateverTheNumberOfRanks) {
  for (int ranks : {1, 2}) {
    const v1::Link link = ProbeThisMachine(ranks, 1, ProbedLink::kLoopback).link();
    EXPECT_GT(link.latency_seconds(), 0);
    EXPECT_LT(link.bytes_per_second(), 1e12);  // a socket's, not the unlimited one of a single rank
  }
}

}  // namespace
}  // namespace metp
