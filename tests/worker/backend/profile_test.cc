// Device profiles: the built-in ones, and what is said of wrong ones.

#include "worker/backend/sim/profile.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace metp::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kText[] =
    "name: mine\n"
    "precision: bf16\n"
    "memory_bytes: 80000000000\n"
    "bytes_per_second: 2e12\n"
    "gemm: {flops_per_second: 250e12}\n"
    "attention_forward: {flops_per_second: 200e12}\n"
    "attention_backward: {flops_per_second: 170e12}\n"
    "link: {bytes_per_second: 240e9, latency_seconds: 1e-5}\n"
    "devices_per_node: 8\n";

std::string Without(const std::string& line) {
  std::string text = kText;
  const size_t at = text.find(line);
  return text.erase(at, text.find('\n', at) + 1 - at);
}

TEST(Profile, BuiltInOnesAreCompleteAndTheirNames) {
  EXPECT_THAT(BuiltInProfiles(), ElementsAre("a100-80g", "a800-80g", "b200", "h100-80g", "h100-96g", "h200"));
  for (const std::string& name : BuiltInProfiles()) {
    const auto profile = LoadProfile(name);
    ASSERT_THAT(profile, IsOk());
    EXPECT_EQ(profile->name(), name);
    EXPECT_EQ(profile->precision(), v1::DeviceProfile::PRECISION_BF16);
    EXPECT_LT(profile->gemm().flops_per_second(), profile->peak_flops_per_second());
    EXPECT_LT(profile->node_link().bytes_per_second(), profile->link().bytes_per_second());
  }
}

TEST(Profile, AFileIsReadAndCompleted) {
  const TempFolder folder;
  const std::string path = folder.path() + "/mine.yaml";
  std::ofstream(path) << kText;
  const auto profile = LoadProfile(path);
  ASSERT_THAT(profile, IsOk());
  EXPECT_EQ(UsableBytes(*profile), 77'500'000'000);
  EXPECT_EQ(profile->peak_flops_per_second(), 250e12);
  EXPECT_EQ(profile->attention_forward().bytes_per_second(), 2e12);
  EXPECT_EQ(profile->node_link().bytes_per_second(), 240e9);
}

TEST(Profile, IsTheSameAfterAWayThroughAFile) {
  auto profile = LoadProfile("h200");
  ASSERT_THAT(profile, IsOk());
  profile->set_name("it's mine: #1");
  profile->mutable_attention_forward()->set_scores_per_second(1e10 / 3);
  const auto again = ParseProfile(ProfileToYaml(*profile), "again");
  ASSERT_THAT(again, IsOk());
  EXPECT_EQ(again->SerializeAsString(), profile->SerializeAsString());
}

TEST(Profile, SaysWhatIsWrongWithAFile) {
  EXPECT_THAT(ParseProfile(Without("gemm"), "mine.yaml"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("mine.yaml:1: gemm: missing, expected a section (flops_per_second")));
  EXPECT_THAT(
      ParseProfile(Without("gemm") + "gemm: {flops_per_second: 0}\n", "mine.yaml"),
      StatusIs(absl::StatusCode::kInvalidArgument,
               "mine.yaml:9: gemm.flops_per_second: found 0, expected a number of at least 1 and at most "
               "1e+30"));
  EXPECT_THAT(
      ParseProfile(Without("link") + "link: {bytes_per_second: 1e9, latency_seconds: -1}\n", "mine.yaml"),
      StatusIs(absl::StatusCode::kInvalidArgument,
               "mine.yaml:9: link.latency_seconds: found -1, expected a number of at least 0 and at "
               "most 3600"));
  EXPECT_THAT(
      ParseProfile(std::string(kText) + "gem: {flops_per_second: 1}\n", "mine.yaml"),
      StatusIs(absl::StatusCode::kInvalidArgument, "mine.yaml:10: gem: unknown key, did you mean 'gemm'?"));
  EXPECT_THAT(
      ParseProfile(std::string(kText) + "reserved_bytes: 90000000000\n", "mine.yaml"),
      StatusIs(absl::StatusCode::kInvalidArgument,
               "mine.yaml:10: reserved_bytes: found 90000000000 and a workspace_bytes of 67108864, expected "
               "less than memory_bytes, 80000000000, together"));
}

TEST(Profile, SaysWhichNamesThereAre) {
  EXPECT_THAT(LoadProfile("h100"),
              StatusIs(absl::StatusCode::kNotFound,
                       "profile 'h100': found neither a file of that name nor a built-in profile, expected "
                       "a100-80g, a800-80g, b200, h100-80g, h100-96g, h200 or a profile file"));
}

}  // namespace
}  // namespace metp::testing
