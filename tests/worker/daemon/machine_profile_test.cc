// The profile that a worker tells: measured once for a machine by a program of its own, here a script.

#include "worker/daemon/machine_profile.h"

#include <gmock/gmock.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"
#include "worker/backend/sim/profile.h"

namespace metp {
namespace {

using ::testing::HasSubstr;
using testing::TempFolder;

class MachineProfile : public ::testing::Test {
 protected:
  /// A metp-rank whose probe notes its arguments, a line a call, and then does `script`.
  void Program(const std::string& script) {
    config_.rank_program = folder_.path() + "/rank";
    std::ofstream(config_.rank_program) << "#!/bin/sh\necho \"$@\" >> " << folder_.path() << "/calls\n"
                                        << script;
    std::filesystem::permissions(config_.rank_program, std::filesystem::perms::owner_all);
  }
  /// One that prints h200's profile.
  void GoodProgram() {
    std::ofstream(folder_.path() + "/h200") << ProfileToYaml(*LoadProfile("h200"));
    Program("echo a warning >&2; cat " + folder_.path() + "/h200 >&3\n");
  }
  std::vector<std::string> Calls() const {
    std::vector<std::string> calls;
    std::ifstream file(folder_.path() + "/calls");
    for (std::string line; std::getline(file, line);) calls.push_back(line);
    return calls;
  }
  absl::StatusOr<std::optional<v1::DeviceProfile>> Get() {
    return ProfileOfThisWorker(
        config_, {"cpu", 3, 64'000'000'000}, [] { return false; }, Note());
  }
  NotKept Note() {
    return [this](const absl::Status& why) { not_kept_.emplace_back(why.message()); };
  }
  void SetUp() override {
    config_.node = "here";
    config_.workers_here = 2;
    config_.profile_cache = folder_.path() + "/cache/deep";
  }
  std::vector<std::string> not_kept_;
  TempFolder folder_;
  WorkerConfig config_;
};

TEST_F(MachineProfile, IsMeasuredWithAllWorkersOfTheMachineAtOnceAndKept) {
  GoodProgram();
  for (int i = 0; i < 2; ++i) {
    const auto profile = Get();
    ASSERT_THAT(profile, IsOk());
    ASSERT_TRUE(profile->has_value());
    EXPECT_EQ((*profile)->name(), "here");
    EXPECT_EQ((*profile)->memory_bytes(), 64'000'000'000);
    EXPECT_FALSE((*profile)->has_node_link());  // nobody has measured one
    EXPECT_EQ((*profile)->gemm().flops_per_second(), LoadProfile("h200")->gemm().flops_per_second());
  }
  EXPECT_THAT(Calls(), ::testing::ElementsAre("probe --comm gloo --ranks 2 --threads 3 --fd 3"));
  const auto less = ProfileOfThisWorker(
      config_, {"cpu", 3, 32'000'000'000}, [] { return false; }, Note());
  EXPECT_EQ((*less)->memory_bytes(), 32'000'000'000);  // a limit of today, not of when it was measured
  EXPECT_THAT(Calls(), ::testing::SizeIs(1));
  config_.workers_here = 1;  // another share of the machine
  EXPECT_THAT(Get(), IsOk());
  EXPECT_THAT(Calls(), ::testing::SizeIs(2));
}

TEST_F(MachineProfile, IsMeasuredOnceByWorkersThatStartTogether) {
  GoodProgram();
  std::vector<std::thread> workers;
  std::atomic<int> good = 0;
  for (int i = 0; i < 4; ++i) workers.emplace_back([&] { good += Get().ok() ? 1 : 0; });
  for (std::thread& worker : workers) worker.join();
  EXPECT_EQ(good, 4);
  EXPECT_THAT(Calls(), ::testing::SizeIs(1));
}

TEST_F(MachineProfile, IsMeasuredAgainWhereTheCacheIsSpoiledOrCannotBe) {
  GoodProgram();
  ASSERT_THAT(Get(), IsOk());
  for (const auto& file : std::filesystem::directory_iterator(config_.profile_cache)) {
    if (file.path().extension() == ".yaml") std::ofstream(file.path()) << "gemm: [";
  }
  EXPECT_THAT(Get(), IsOk());
  EXPECT_THAT(Calls(), ::testing::SizeIs(2));
  config_.profile_cache = config_.rank_program + "/no-folder";
  EXPECT_THAT(Get(), IsOk());
  EXPECT_THAT(Calls(), ::testing::SizeIs(3));
  EXPECT_THAT(not_kept_, ::testing::SizeIs(1));
}

TEST_F(MachineProfile, IsNotWaitedForForever) {
  config_.profile_timeout = std::chrono::milliseconds(300);
  Program("exec >&- 2>&- 3>&-; exec sleep 1000\n");  // deaf and dumb
  EXPECT_THAT(Get(), StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("no end after")));
  Program("exec yes\n");
  EXPECT_THAT(Get(), StatusIs(absl::StatusCode::kDeadlineExceeded));
}

TEST_F(MachineProfile, TakesWhatAProbeStartedDownWithIt) {
  Program("sleep 1000 & echo $! > " + folder_.path() + "/child; echo bad; exit 3\n");
  EXPECT_THAT(Get(), StatusIs(absl::StatusCode::kInternal, HasSubstr("exit code 3: bad")));
  pid_t child = 0;
  std::ifstream(folder_.path() + "/child") >> child;
  ASSERT_GT(child, 0);
  const auto running = [&] {  // not gone, nor dead and waiting for init to take note
    std::string state;
    std::ifstream("/proc/" + std::to_string(child) + "/stat") >> state >> state >> state;
    return !state.empty() && state != "Z" && state != "X";
  };
  while (running()) std::this_thread::yield();  // it has been sent its signal; without it this never ends
}

TEST_F(MachineProfile, FailsWithWhatTheProgramSaid) {
  Program("echo no memory left >&2; exit 1\n");
  EXPECT_THAT(Get(), StatusIs(absl::StatusCode::kInternal, HasSubstr("probe: exit code 1: no memory left")));
  Program("kill -9 $$\n");
  EXPECT_THAT(Get(), StatusIs(absl::StatusCode::kInternal, HasSubstr("probe: killed by signal 9")));
  Program("echo 'name: x' >&3\n");
  EXPECT_THAT(Get(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("the measured profile")));
  config_.rank_program = "/nonexistent/rank";
  EXPECT_THAT(Get(), ::testing::Not(IsOk()));
}

TEST_F(MachineProfile, EndsTheMeasurementWhenAskedToLeave) {
  Program("exec sleep 1000\n");
  int asked = 0;
  const auto profile = ProfileOfThisWorker(
      config_, {}, [&] { return ++asked > 3; }, Note());
  EXPECT_THAT(profile, StatusIs(absl::StatusCode::kCancelled));
}

TEST_F(MachineProfile, IsWhatTheOperatorNames) {
  config_.profile = "none";
  EXPECT_FALSE(Get()->has_value());
  config_.profile = "h100-80g";
  EXPECT_EQ((*Get())->name(), "h100-80g");
  EXPECT_EQ((*Get())->precision(), v1::DeviceProfile::PRECISION_FP32);  // this worker computes on the CPU
  config_.profile = "/nonexistent";
  EXPECT_THAT(Get(), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(Calls(), ::testing::IsEmpty());
}

TEST_F(MachineProfile, OfAGpuIsMeasuredOnItAndKeptForItsProduct) {
  GoodProgram();
  Device device{"NVIDIA H200", 3, 149'000'000'000, "GPU-1a", "580.95.05", 512'000'000'000};
  const auto get = [&] {
    return ProfileOfThisWorker(
        config_, device, [] { return false; }, Note());
  };
  for (const char* gpu : {"GPU-1a", "GPU-1b"}) {
    device.gpu = gpu;
    const auto profile = get();
    ASSERT_THAT(profile, IsOk());
    EXPECT_EQ((*profile)->name(), "here");
    EXPECT_EQ((*profile)->memory_bytes(), 149'000'000'000);
    EXPECT_EQ((*profile)->host_memory_bytes(), 512'000'000'000);
    EXPECT_EQ((*profile)->node_link().SerializeAsString(),
              LoadProfile("h200")->node_link().SerializeAsString());
  }
  EXPECT_THAT(Calls(), ::testing::ElementsAre("probe --device gpu --ranks 2 --threads 3 --fd 3"));
  device.kind = "NVIDIA A100-SXM4-80GB";
  EXPECT_THAT(get(), IsOk());
  EXPECT_THAT(Calls(), ::testing::SizeIs(2));
  EXPECT_THAT(Get(), IsOk());  // on the CPU
  EXPECT_THAT(Calls(), ::testing::SizeIs(3));
  EXPECT_EQ(Calls().back(), "probe --comm gloo --ranks 2 --threads 3 --fd 3");
  config_.profile = "a100-80g";
  EXPECT_EQ((*get())->name(), "a100-80g");
  EXPECT_THAT(Calls(), ::testing::SizeIs(3));
}

TEST_F(MachineProfile, OfAGpuIsMeasuredOnThatOne) {
  v1::DeviceProfile measured = *LoadProfile("h200");
  *measured.mutable_node_link() = measured.link();  // as of a product that is not known
  std::ofstream(folder_.path() + "/h200") << ProfileToYaml(measured);
  Program("echo $CUDA_VISIBLE_DEVICES > " + folder_.path() + "/seen; cat " + folder_.path() + "/h200 >&3\n");
  const Device device{"NVIDIA H200", 3, 149'000'000'000, "GPU-1a", "580.95.05", 512'000'000'000};
  const auto profile = ProfileOfThisWorker(
      config_, device, [] { return false; }, Note());
  ASSERT_THAT(profile, IsOk());
  EXPECT_FALSE((*profile)->has_node_link());
  std::string seen;
  std::ifstream(folder_.path() + "/seen") >> seen;
  EXPECT_EQ(seen, "GPU-1a");
}

}  // namespace
}  // namespace metp
