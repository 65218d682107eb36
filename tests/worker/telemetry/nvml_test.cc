// What is known of GPUs, asked of a made-up library (tests/support/fake_gpus.h).

#include "worker/telemetry/gpu/nvml.h"

#include <gmock/gmock.h>

#include "tests/support/fake_gpus.h"
#include "tests/support/status_matchers.h"
#include "worker/telemetry/gpu/xid.h"

namespace metp {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr auto kAtOnce = std::chrono::milliseconds(0);
constexpr int kLost = 15, kNotSupported = 3;  // as NVML numbers them

class NvmlTest : public ::testing::Test {
 protected:
  /// The first device.
  Gpu First() {
    const absl::StatusOr<Nvml> nvml = Nvml::Open(testing::FakeGpus::library());
    EXPECT_THAT(nvml, IsOk());
    return *nvml->Gpus()->at(0);
  }
  absl::Status Open() { return Nvml::Open(testing::FakeGpus::library()).status(); }

  testing::FakeGpus fake_;
};

TEST_F(NvmlTest, SaysThatThereIsNoDriverAndWhatIsNeeded) {
  EXPECT_THAT(Nvml::Open("/nowhere/libnvidia-ml.so.1"),
              StatusIs(absl::StatusCode::kNotFound,
                       AllOf(HasSubstr("found no NVIDIA driver (/nowhere/libnvidia-ml.so.1: "),
                             HasSubstr("needed is one for CUDA 13: 580 or newer"))));
  EXPECT_THAT(Nvml::Open("libc.so.6"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("has no nvmlInit_v2")));
  fake_.init = 9;
  fake_.Write();
  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kNotFound, HasSubstr("Driver Not Loaded")));
}

TEST_F(NvmlTest, RefusesADriverThatIsTooOld) {
  fake_.driver = "535.104.05";
  fake_.cuda = 12020;
  fake_.Write();
  EXPECT_THAT(
      Open(),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               "found NVIDIA driver 535.104.05 (CUDA 12.2); needed is one for CUDA 13: 580 or newer"));
  fake_.cuda = 0;
  fake_.Write();
  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kFailedPrecondition));
  fake_.cuda = 13000;  // with the compatibility package
  fake_.Write();
  EXPECT_THAT(Open(), IsOk());
  fake_.init = 18;
  fake_.Write();
  EXPECT_THAT(Open(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("the old one is still loaded")));
}

TEST_F(NvmlTest, DescribesEachDevice) {
  fake_.gpus.push_back({.uuid = "GPU-22222222", .name = "NVIDIA A100-SXM4-80GB", .major = 8});
  fake_.Write();
  const absl::StatusOr<Nvml> nvml = Nvml::Open(testing::FakeGpus::library());
  ASSERT_THAT(nvml, IsOk());
  EXPECT_EQ(nvml->driver(), "580.95.05");
  const auto gpus = nvml->Gpus();
  ASSERT_THAT(gpus, IsOk());
  ASSERT_THAT(*gpus, SizeIs(2));
  const GpuIdentity& second = gpus->at(1)->identity();
  EXPECT_EQ(second.index, 1);
  EXPECT_EQ(second.uuid, "GPU-22222222");
  EXPECT_EQ(second.name, "NVIDIA A100-SXM4-80GB");
  EXPECT_EQ(second.bus, "00000000:3B:00.0");
  EXPECT_EQ(second.driver, "580.95.05");
  EXPECT_EQ(second.major, 8);
  EXPECT_EQ(gpus->at(1)->Label(), "1 (GPU-22222222, NVIDIA A100-SXM4-80GB)");
}

TEST_F(NvmlTest, GivesTheErrorOfADeviceThatDoesNotAnswerInItsPlace) {
  fake_.gpus.push_back({.uuid = "GPU-22222222", .error = kLost});
  fake_.gpus.push_back({.uuid = "GPU-33333333"});
  fake_.Write();
  const auto gpus = Nvml::Open(testing::FakeGpus::library())->Gpus();
  ASSERT_THAT(*gpus, SizeIs(3));
  EXPECT_THAT(gpus->at(1),
              StatusIs(absl::StatusCode::kUnavailable, "nvmlDeviceGetHandleByIndex_v2: GPU is lost"));
  EXPECT_EQ(gpus->at(2)->identity().index, 2);
}

TEST_F(NvmlTest, CountsMemoryWithoutWhatTheDriverKeeps) {
  fake_.gpus[0] = {.total_mib = 1000, .reserved_mib = 100, .used_mib = 30};
  fake_.Write();
  const absl::StatusOr<GpuMemory> memory = First().Memory();
  ASSERT_THAT(memory, IsOk());
  EXPECT_EQ(memory->total_bytes, int64_t{900} << 20);
  EXPECT_EQ(memory->used_bytes, int64_t{30} << 20);
}

TEST_F(NvmlTest, ListsProcessesHoweverMany) {
  EXPECT_THAT(*First().Processes(), IsEmpty());
  fake_.gpus[0].processes = {{71, 2000}, {72, -1}};
  for (int i = 0; i < 40; ++i) fake_.gpus[0].processes.emplace_back(100 + i, 1);
  fake_.Write();
  const auto processes = First().Processes();
  ASSERT_THAT(processes, IsOk());
  ASSERT_THAT(*processes, SizeIs(42));
  EXPECT_EQ(processes->at(0).pid, 71);
  EXPECT_EQ(processes->at(0).bytes, int64_t{2000} << 20);
  EXPECT_EQ(processes->at(1).bytes, std::nullopt);
}

TEST_F(NvmlTest, KnowsModesAndMemoryErrors) {
  const Gpu gpu = First();
  EXPECT_FALSE(*gpu.Split());
  EXPECT_FALSE(*gpu.ComputeProhibited());
  EXPECT_EQ(*gpu.UncorrectedErrors(), 0);
  fake_.gpus[0].split = true;
  fake_.gpus[0].mode = 2;
  fake_.gpus[0].ecc_errors = 3;
  fake_.Write();
  EXPECT_TRUE(*gpu.Split());
  EXPECT_TRUE(*gpu.ComputeProhibited());
  EXPECT_EQ(*gpu.UncorrectedErrors(), 3);
  fake_.gpus[0].error = kNotSupported;
  fake_.Write();
  EXPECT_FALSE(*gpu.Split());
  EXPECT_THAT(gpu.UncorrectedErrors(),
              StatusIs(absl::StatusCode::kUnimplemented, "nvmlDeviceGetTotalEccErrors: Not Supported"));
  EXPECT_THAT(gpu.WatchXids(), StatusIs(absl::StatusCode::kUnimplemented));
}

TEST_F(NvmlTest, GivesEachXidOnceAndNoneFromBefore) {
  fake_.gpus[0].xids = {13};
  fake_.Write();
  const auto events = First().WatchXids();
  ASSERT_THAT(events, IsOk());
  EXPECT_THAT((*events)->Take(kAtOnce), IsEmpty());
  fake_.gpus[0].xids = {13, 31, 43};
  fake_.Write();
  EXPECT_THAT((*events)->Take(kAtOnce), ElementsAre(31, 43));
  EXPECT_THAT((*events)->Take(kAtOnce), IsEmpty());
  fake_.gpus[0].xids.insert(fake_.gpus[0].xids.end(), 100, 31);
  fake_.Write();
  EXPECT_THAT((*events)->Take(kAtOnce), SizeIs(64));  // the rest the next time
  EXPECT_THAT((*events)->Take(kAtOnce), SizeIs(36));
}

TEST(Xid, IsSaidInWords) {
  EXPECT_EQ(DescribeXid(79), "Xid 79 (the GPU has fallen off the bus: restart the machine)");
  EXPECT_EQ(DescribeXid(9999), "Xid 9999");
  for (const int xid : {13, 31, 43, 45, 48, 63, 64, 74, 79, 92, 94, 95, 109, 119, 120, 140, 144, 150, 154})
    EXPECT_THAT(DescribeXid(xid), HasSubstr("(")) << xid;
}

}  // namespace
}  // namespace metp
