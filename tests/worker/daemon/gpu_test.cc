// A worker's GPU: chosen, found fit, taken once, and watched (made-up ones, tests/support/fake_gpus.h).

#include "worker/daemon/gpu.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <thread>

#include "tests/support/fake_gpus.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"
#include "worker/daemon/device.h"
#include "worker/daemon/gpu_watch.h"

namespace metp {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::StartsWith;

constexpr int64_t kMib = 1 << 20;
constexpr auto kAtOnce = std::chrono::milliseconds(0);

class WorkerGpu : public ::testing::Test {
 protected:
  WorkerGpu() {
    fake_.gpus[0].uuid = "GPU-1a000000-01";
    fake_.gpus.push_back({.uuid = "GPU-1b000000-02", .name = "NVIDIA B200", .major = 10});
    fake_.Write();
    config_.name = "gpu-0";
    config_.gpu = "0";
    config_.nvml_library = testing::FakeGpus::library();
    config_.lock_folder = folder_.path() + "/locks";
    config_.gpu_memory_wait = std::chrono::milliseconds(0);
    config_.gpu_look = std::chrono::milliseconds(1);
  }
  absl::StatusOr<TakenGpu> Take() {
    fake_.Write();
    return TakeGpu(config_);
  }
  absl::StatusOr<std::string> Choose(const std::string& wanted) {
    fake_.Write();
    const auto gpus = Nvml::Open(config_.nvml_library)->Gpus();
    const absl::StatusOr<Gpu> gpu = ChooseGpu(wanted, *gpus);
    if (!gpu.ok()) return gpu.status();
    return gpu->uuid();
  }

  testing::FakeGpus fake_;
  testing::TempFolder folder_;
  WorkerConfig config_;
};

TEST_F(WorkerGpu, IsChosenByIndexOrByTheBeginningOfItsUuid) {
  EXPECT_EQ(*Choose("1"), "GPU-1b000000-02");
  EXPECT_EQ(*Choose("GPU-1a000000-01"), "GPU-1a000000-01");
  EXPECT_EQ(*Choose("gpu-1B"), "GPU-1b000000-02");
}

TEST_F(WorkerGpu, IsNotGuessed) {
  const std::string choices =
      "; expected one of: 0 (GPU-1a000000-01, NVIDIA H200), 1 (GPU-1b000000-02, NVIDIA B200)";
  EXPECT_THAT(Choose("2"), StatusIs(absl::StatusCode::kInvalidArgument, "there is no GPU 2" + choices));
  EXPECT_THAT(Choose("99999999999999999999999"), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Choose("GPU-1"), StatusIs(absl::StatusCode::kInvalidArgument,
                                        "'GPU-1' begins the UUID of more than one GPU" + choices));
  for (const char* wanted : {"GPU-2", "1a", "-1", "", "first"}) {
    EXPECT_THAT(Choose(wanted), StatusIs(absl::StatusCode::kInvalidArgument,
                                         HasSubstr("is no GPU's index or UUID" + choices)))
        << wanted;
  }
  fake_.gpus[0].error = 15;
  EXPECT_EQ(*Choose("1"), "GPU-1b000000-02");
  EXPECT_THAT(Choose("0"), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("GPU is lost")));
  EXPECT_THAT(Choose("7"), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("(not 0: ")));
  fake_.gpus.clear();
  EXPECT_THAT(Choose("0"), StatusIs(absl::StatusCode::kNotFound, HasSubstr("no GPU; needed is one")));
}

TEST_F(WorkerGpu, IsTakenByOneWorkerOnly) {
  const absl::StatusOr<TakenGpu> first = Take();
  ASSERT_THAT(first, IsOk());
  EXPECT_EQ(first->gpu.uuid(), "GPU-1a000000-01");
  EXPECT_EQ(first->memory.total_bytes, (143771 - 600) * kMib);
  config_.name = "gpu-1";
  EXPECT_THAT(Take(), StatusIs(absl::StatusCode::kAlreadyExists,
                               "GPU GPU-1a000000-01 is taken by metp-worker gpu-0 (pid " +
                                   std::to_string(getpid()) + "); a GPU has one worker"));
  config_.gpu = "1";
  EXPECT_THAT(Take(), IsOk());
  EXPECT_THAT(Take(), IsOk());  // the one before has let it go
}

TEST_F(WorkerGpu, IsNotLockedWhereOthersCouldWrite) {
  std::filesystem::create_directories(config_.lock_folder);
  std::filesystem::permissions(config_.lock_folder, std::filesystem::perms::all);
  EXPECT_THAT(Take(), StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("expected a folder")));
  config_.lock_folder = folder_.path() + "/link";
  std::filesystem::create_directory_symlink(folder_.path(), config_.lock_folder);
  EXPECT_THAT(Take(), StatusIs(absl::StatusCode::kPermissionDenied));
}

TEST_F(WorkerGpu, IsRefusedWhereRanksCannotRunOnIt) {
  fake_.gpus[0].split = true;
  EXPECT_THAT(Take(), StatusIs(absl::StatusCode::kFailedPrecondition,
                               AllOf(HasSubstr("(MIG)"), HasSubstr("nvidia-smi -i GPU-1a000000-01 -mig 0"))));
  fake_.gpus[0].split = false;
  fake_.gpus[0].mode = 2;
  EXPECT_THAT(Take(), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("PROHIBITED")));
  fake_.gpus[0].mode = 3;  // exclusive: a rank is one process
  EXPECT_THAT(Take(), IsOk());
  fake_.gpus[0].major = 7;
  fake_.gpus[0].minor = 5;
  EXPECT_THAT(Take(), StatusIs(absl::StatusCode::kFailedPrecondition,
                               HasSubstr("compute capability 7.5, 8.0 or newer needed: A100")));
  fake_.driver = "535.1";
  fake_.cuda = 12020;
  EXPECT_THAT(Take(),
              StatusIs(absl::StatusCode::kFailedPrecondition, StartsWith("found NVIDIA driver 535.1")));
  config_.nvml_library = "/nowhere/libnvidia-ml.so.1";
  EXPECT_THAT(Take(), StatusIs(absl::StatusCode::kNotFound, StartsWith("found no NVIDIA driver")));
}

TEST_F(WorkerGpu, IsRefusedWhereItsBlocksHaveTooLittleSharedMemory) {
  const auto take = [&](int major, int minor) {
    fake_.gpus[0].major = major;
    fake_.gpus[0].minor = minor;
    return Take();
  };
  for (const auto& [major, minor] : {std::pair(8, 6), {8, 9}, {12, 0}, {12, 1}}) {
    EXPECT_THAT(take(major, minor),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         AllOf(StartsWith("GPU 0 (GPU-1a000000-01, NVIDIA H200): compute capability "),
                               HasSubstr("has 99 KiB of shared memory a block, 163 KiB needed: A100"))));
  }
  EXPECT_THAT(take(8, 7), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("is a Tegra's")));
  for (const auto& [major, minor] : {std::pair(8, 0), {9, 0}, {10, 0}, {10, 3}, {11, 0}}) {
    EXPECT_THAT(take(major, minor), IsOk()) << major << "." << minor;
  }
}

TEST_F(WorkerGpu, IsRefusedWhileOthersComputeOnIt) {
  fake_.gpus[0].used_mib = 300;  // a screen
  EXPECT_THAT(Take(), IsOk());
  fake_.gpus[0].processes = {{71, 40}, {72, 700}};
  fake_.gpus[0].used_mib = 744;
  EXPECT_THAT(Take(),
              StatusIs(absl::StatusCode::kUnavailable,
                       "GPU 0 (GPU-1a000000-01, NVIDIA H200) is busy: 744 MiB of its memory are in use, "
                       "pid 71 holds 40 MiB, pid 72 holds 700 MiB; needed is one that nobody else "
                       "computes on"));
  fake_.gpus[0].processes = {{71, -1}};
  EXPECT_THAT(Take(), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("pid 71 holds an unknown part")));
  fake_.gpus[0].processes = {};
  fake_.gpus[0].used_mib = 4000;
  EXPECT_THAT(Take(), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("by programs that cannot be seen")));
}

TEST_F(WorkerGpu, WaitsForTheMemoryOfAnEarlierWorkersRanks) {
  config_.gpu_memory_wait = std::chrono::seconds(60);
  fake_.gpus[0].used_mib = 90000;
  fake_.Write();
  absl::StatusOr<TakenGpu> taken = absl::UnknownError("");
  std::thread taking([&] { taken = TakeGpu(config_); });
  while (!std::filesystem::exists(config_.lock_folder)) std::this_thread::yield();
  fake_.gpus[0].used_mib = 4;
  fake_.Write();
  taking.join();
  ASSERT_THAT(taken, IsOk());
  EXPECT_EQ(taken->memory.used_bytes, 4 * kMib);
}

TEST_F(WorkerGpu, KnowsWhetherRanksHaveGivenItsMemoryBack) {
  fake_.gpus[0].used_mib = 300;
  const GpuWatch watch(*Take(), 256 * kMib);
  fake_.gpus[0].used_mib = 556;
  fake_.Write();
  EXPECT_THAT(watch.MemoryIsFree(), IsOk());
  fake_.gpus[0].used_mib = 557;
  fake_.Write();
  EXPECT_THAT(watch.MemoryIsFree(), StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("257 MiB")));
}

TEST_F(WorkerGpu, ReportsWhatWentWrongSinceARankStarted) {
  GpuWatch watch(*Take(), 256 * kMib);
  EXPECT_EQ(watch.TakeErrors(kAtOnce), "");
  fake_.gpus[0].xids = std::vector<int>(100, 13);
  fake_.gpus[0].ecc_errors = 1;
  fake_.Write();
  watch.RankStarts();
  EXPECT_EQ(watch.TakeErrors(kAtOnce), "");
  fake_.gpus[0].xids.push_back(94);
  fake_.gpus[0].ecc_errors = 2;
  fake_.Write();
  EXPECT_THAT(watch.TakeErrors(kAtOnce),
              AllOf(StartsWith("its GPU reported Xid 94 ("), HasSubstr("), 1 new memory error")));
  EXPECT_EQ(watch.TakeErrors(kAtOnce), "");
}

TEST_F(WorkerGpu, IsTheWorkersDevice) {
  const Device cpu{"cpu", 3, 64 * kMib};
  EXPECT_EQ(Describe(cpu), "cpu");
  EXPECT_THAT(ComputeEnvironment(cpu.gpu), IsEmpty());
  const absl::StatusOr<TakenGpu> taken = Take();
  const Device device = WithGpu(cpu, 2, taken->gpu.identity(), taken->memory);
  EXPECT_EQ(Describe(device), "NVIDIA H200 GPU-1a000000, driver 580.95.05");
  EXPECT_EQ(device.threads, 3);
  EXPECT_EQ(device.memory_bytes, taken->memory.total_bytes);
  EXPECT_EQ(device.host_memory_bytes, 128 * kMib);
  EXPECT_THAT(ComputeEnvironment(device.gpu), ElementsAre(Pair("CUDA_VISIBLE_DEVICES", "GPU-1a000000-01")));
}

}  // namespace
}  // namespace metp
