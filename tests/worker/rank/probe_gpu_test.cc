// `metp-rank probe --device gpu` on the emulated device: a whole and usable profile. Its figures are the emulation's.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "tests/support/subprocess.h"
#include "worker/backend/sim/profile.h"

namespace metp {
namespace {

using ::testing::HasSubstr;

constexpr std::chrono::seconds kPatience{240};  // ten times what it takes on an idle machine

/// The probe's end, with what the environment variable METP_CUDA_MODULE names.
Subprocess::Exit Probe(const std::string& module, const std::vector<std::string>& arguments) {
  std::vector<std::string> command = {std::string(METP_BINARY_DIR) + "/metp-rank", "probe", "--device",
                                      "gpu"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return Subprocess(command, {{"METP_CUDA_MODULE", module}}).Wait(kPatience);
}

TEST(CudaProbe, MeasuresACompleteProfile) {
  const Subprocess::Exit exit =
      Probe(std::string(METP_BINARY_DIR) + "/metp-cuda-emulated.so", {"--ranks", "4", "--threads", "1"});
  ASSERT_EQ(exit.code, 0) << exit.error;
  const absl::StatusOr<v1::DeviceProfile> profile = ParseProfile(exit.out, "measured");
  ASSERT_TRUE(profile.ok()) << profile.status();
  EXPECT_EQ(ProfileToYaml(*profile), exit.out);  // nothing was left to a default
  EXPECT_EQ(profile->name(), "emulated");
  EXPECT_EQ(
      profile->source(),
      "one emulated, measured by itself; its links to neighbours are taken to be like that to host memory");
  EXPECT_EQ(profile->precision(), v1::DeviceProfile::PRECISION_BF16);
  EXPECT_FALSE(profile->one_memory());
  EXPECT_EQ(profile->memory_bytes(), int64_t{1} << 30);
  EXPECT_EQ(profile->workspace_bytes(), int64_t{40} << 20);  // cuBLASLt's and the kernels'
  EXPECT_GT(profile->host_memory_bytes(), 0);
  EXPECT_EQ(profile->devices_per_node(), 4);
  for (double rate : {profile->bytes_per_second(), profile->peak_flops_per_second(),
                      profile->host_link().bytes_per_second(), profile->link().bytes_per_second()}) {
    EXPECT_GT(rate, 1e5);
    EXPECT_LT(rate, 1e13);
  }
  EXPECT_GT(profile->kernel_seconds(), 0);
  EXPECT_LT(profile->kernel_seconds(), 1);
  EXPECT_GT(profile->host_link().latency_seconds(), 0);
  EXPECT_EQ(profile->link().SerializeAsString(), profile->host_link().SerializeAsString());
}

TEST(CudaProbe, SaysWhatIsMissing) {
  const Subprocess::Exit absent = Probe("/nowhere/metp-cuda.so", {});
  EXPECT_EQ(absent.code, 1);
  EXPECT_THAT(absent.error, HasSubstr("/nowhere/metp-cuda.so"));
  EXPECT_EQ(absent.out, "");
  const Subprocess::Exit odd = Probe("/nowhere/metp-cuda.so", {"--comm", "gloo"});
  EXPECT_EQ(odd.code, 2);
  EXPECT_THAT(odd.error, HasSubstr("--comm is of ranks on the CPU"));
}

}  // namespace
}  // namespace metp
