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
    Program("cat " + folder_.path() + "/h200\n");
  }
  std::vector<std::string> Calls() const {
    std::vector<std::string> calls;
    std::ifstream file(folder_.path() + "/calls");
    for (std::string line; std::getline(file, line);) calls.push_back(line);
    return calls;
  }
  absl::StatusOr<std::optional<v1::DeviceProfile>> Get() {
    return ProfileOfThisWorker(config_, {"cpu", 3, 64'000'000'000}, [] { return false; });
  }
  void SetUp() override {
    config_.node = "here";
    config_.workers_here = 2;
    config_.profile_cache = folder_.path() + "/cache/deep";
  }
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
    EXPECT_EQ((*profile)->gemm().flops_per_second(), LoadProfile("h200")->gemm().flops_per_second());
  }
  EXPECT_THAT(Calls(), ::testing::ElementsAre("probe --comm gloo --ranks 2 --threads 3"));
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
}

TEST_F(MachineProfile, FailsWithWhatTheProgramSaid) {
  Program("echo no memory left >&2; exit 1\n");
  EXPECT_THAT(Get(), StatusIs(absl::StatusCode::kInternal, HasSubstr("probe failed: no memory left")));
  Program("echo 'name: x'\n");
  EXPECT_THAT(Get(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("the measured profile")));
  config_.rank_program = "/nonexistent/rank";
  EXPECT_THAT(Get(), ::testing::Not(IsOk()));
}

TEST_F(MachineProfile, EndsTheMeasurementWhenAskedToLeave) {
  Program("exec sleep 1000\n");
  int asked = 0;
  const auto profile = ProfileOfThisWorker(config_, {}, [&] { return ++asked > 3; });
  EXPECT_THAT(profile, StatusIs(absl::StatusCode::kCancelled));
}

TEST_F(MachineProfile, IsWhatTheOperatorNames) {
  config_.profile = "none";
  EXPECT_FALSE(Get()->has_value());
  config_.profile = "h100-80g";
  EXPECT_EQ((*Get())->name(), "h100-80g");
  config_.profile = "/nonexistent";
  EXPECT_THAT(Get(), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(Calls(), ::testing::IsEmpty());
}

}  // namespace
}  // namespace metp
