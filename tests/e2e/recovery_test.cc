// The whole system with real ranks, and one fault at a time.

#include <gmock/gmock.h>
#include <sched.h>
#include <sys/mount.h>

#include <csignal>
#include <filesystem>

#include "tests/e2e/small_job.h"
#include "tests/support/await_file.h"

namespace metp {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// A job of `steps` that saves every five of them.
std::vector<std::string> Submit(const Cluster& cluster, int steps,
                                const std::vector<std::string>& more = {}) {
  std::vector<std::string> command = {"submit",
                                      "-f",
                                      WriteJob(cluster.folder(), steps),
                                      "--set",
                                      "checkpoint.directory=" + cluster.folder() + "/saved",
                                      "--set",
                                      "checkpoint.every_steps=5"};
  for (const std::string& setting : more) command.insert(command.end(), {"--set", setting});
  return command;
}
pid_t PidOf(const Cluster& cluster, int rank) {
  return std::stoi(cluster.JobField("small", "ranks." + std::to_string(rank) + ".pid"));
}
void AwaitStep(const Cluster& cluster, const std::string& step) {
  ASSERT_NE(cluster.StartCtl({"watch", "small"})->ReadUntil("step " + step + "/"), "");
}
/// The job ends well, with the losses that it would have had anyway, bit for bit.
void ExpectAsIfNothingHadHappened(const Cluster& cluster) {
  const Subprocess::Exit watch = cluster.Ctl({"watch", "small"});
  EXPECT_EQ(watch.code, 0) << watch.error << cluster.Ctl({"events", "small"}).out;
  EXPECT_EQ(Losses(cluster, "small"), LossesAlone(cluster.folder() + "/job.yaml"));
}
Cluster::Options Quick(std::vector<std::string> coordinator = {}) {
  Cluster::Options options;
  options.coordinator = {"--restart-backoff-ms", "100"};
  options.coordinator.insert(options.coordinator.end(), coordinator.begin(), coordinator.end());
  return options;
}

TEST(Recovery, AJobGoesOnByItselfWhenARankIsKilled) {
  Cluster cluster(Quick());
  ASSERT_EQ(cluster.Ctl(Submit(cluster, 40)).code, 0);
  AwaitStep(cluster, "12");
  kill(PidOf(cluster, 2), SIGKILL);
  ExpectAsIfNothingHadHappened(cluster);
  EXPECT_EQ(cluster.JobField("small", "restarts"), "1");
  EXPECT_THAT(cluster.Ctl({"events", "small"}).out,
              AllOf(HasSubstr("rank 2 on worker cpu-2: killed by signal 9 (SIGKILL)"),
                    HasSubstr("tried again after 100 ms"), HasSubstr("attempt 2 goes on after step "),
                    HasSubstr("SUCCEEDED: all 40 steps done")));
  EXPECT_THAT(cluster.Ctl({"describe", "small"}).out, AllOf(HasSubstr("Restarts:"), HasSubstr("step 40")));
}

TEST(Recovery, AJobGoesOnByItselfWhenARankHangs) {
  Cluster cluster(Quick({"--hang-floor-ms", "2000"}));
  ASSERT_EQ(cluster.Ctl(Submit(cluster, 40)).code, 0);
  AwaitStep(cluster, "12");
  kill(PidOf(cluster, 1), SIGSTOP);
  ExpectAsIfNothingHadHappened(cluster);
  EXPECT_THAT(cluster.Ctl({"events", "small"}).out, HasSubstr("it hangs: no step for "));
  EXPECT_THAT(cluster.Ctl({"logs", "small"}).out, HasSubstr("metp-rank: step "));  // where the others were
}

TEST(Recovery, AWorkerThatLeavesSavesItsJobAndCostsItNoStep) {
  Cluster cluster(Quick());
  ASSERT_EQ(cluster.Ctl(Submit(cluster, 40, {"checkpoint.every_steps=1000", "max_restarts=0"})).code, 0);
  AwaitStep(cluster, "7");
  cluster.worker(3).Signal(SIGTERM);
  EXPECT_EQ(cluster.worker(3).Wait().code, 0);
  const Subprocess::Exit events = cluster.Ctl({"events", "small"});
  EXPECT_THAT(events.out, HasSubstr("it goes on from the checkpoint of step "));
  cluster.RestartWorker(3);
  ExpectAsIfNothingHadHappened(cluster);
  EXPECT_EQ(cluster.JobField("small", "fruitless_restarts"), "0");
}

TEST(Recovery, AnEvictedJobGoesOnElsewhereAndDrainingOutlivesTheWorker) {
  Cluster::Options options = Quick();
  options.workers = 5;
  Cluster cluster(options);
  ASSERT_EQ(cluster.Ctl(Submit(cluster, 60)).code, 0);
  AwaitStep(cluster, "7");
  const Subprocess::Exit drain = cluster.Ctl({"drain", "cpu-0", "--evict", "--reason", "new memory"});
  EXPECT_EQ(drain.code, 0) << drain.error;
  EXPECT_EQ(drain.out, "cpu-0 drained\n");
  EXPECT_THAT(drain.error, HasSubstr("holds rank 0 of small-1, which ends its step"));
  ExpectAsIfNothingHadHappened(cluster);
  EXPECT_EQ(cluster.JobField("small", "ranks.0.worker"), "cpu-1");
  EXPECT_THAT(cluster.Ctl({"workers"}).out, HasSubstr("drained: new memory"));
  EXPECT_EQ(cluster.Ctl({"undrain", "cpu-0"}).out, "cpu-0 takes ranks\n");
  EXPECT_EQ(cluster.Ctl({"drain", "cpu-9"}).code, 6);
}

TEST(Recovery, ALossThatIsNotFiniteFailsTheJobAtOnceAndNamesTheLastCheckpoint) {
  Cluster cluster(Quick());
  // The rate is past all reason; what comes of it within some steps is not a number.
  const Subprocess::Exit failed = cluster.Ctl([&] {
    auto command =
        Submit(cluster, 200, {"train.learning_rate=1e30", "train.clip_norm=0", "checkpoint.every_steps=1"});
    command.emplace_back("--watch");
    return command;
  }());
  EXPECT_EQ(failed.code, 1);
  EXPECT_THAT(failed.out, HasSubstr("loss is "));
  EXPECT_THAT(cluster.JobField("small", "reason"), HasSubstr("a smaller train.learning_rate"));
  EXPECT_EQ(cluster.JobField("small", "attempt"), "small-1/1");
}

TEST(Recovery, AFullDiskStopsCheckpointsAndNotTraining) {
  if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
    GTEST_SKIP() << "no file systems of its own are allowed here";
  testing::TempFolder disk;
  ASSERT_EQ(mount("none", disk.path().c_str(), "tmpfs", 0, "size=2m"), 0);
  {
    Cluster cluster(Quick());
    auto command =
        Submit(cluster, 30,
               {"checkpoint.directory=" + disk.path() + "/saved", "checkpoint.keep=5", "max_restarts=0"});
    command.emplace_back("--watch");
    const Subprocess::Exit full = cluster.Ctl(command);  // a checkpoint is 1.3 MB: the second finds no room
    EXPECT_EQ(full.code, 1);
    EXPECT_THAT(full.out, HasSubstr("step 30/30"));
    EXPECT_THAT(cluster.JobField("small", "checkpoint_trouble"), HasSubstr("No space left on device"));
    EXPECT_THAT(cluster.Ctl({"events", "small"}).out, HasSubstr("checkpoint of step 10: rank "));
    EXPECT_EQ(cluster.JobField("small", "checkpoint_step"), "5");  // still there, and whole
    // With room, it goes on from there.
    ASSERT_EQ(mount("none", disk.path().c_str(), nullptr, MS_REMOUNT, "size=100m"), 0);
    const Subprocess::Exit resumed = cluster.Ctl({"resume", "small", "--watch"});
    EXPECT_EQ(resumed.code, 0) << resumed.error;
    EXPECT_THAT(resumed.error, HasSubstr("small-1 goes on as small-2"));
    EXPECT_THAT(cluster.Ctl({"events", "small-2"}).out, HasSubstr("goes on after step 5, from "));
  }
  EXPECT_EQ(umount(disk.path().c_str()), 0);
}

TEST(Recovery, AJobThatWasStoppedEarlyIsResumedAndExported) {
  Cluster cluster(Quick());
  auto command = Submit(cluster, 12, {"train.stop_after=7"});
  EXPECT_EQ(cluster.Ctl({"resume", "nobody"}).code, 6);
  command.emplace_back("--watch");
  ASSERT_EQ(cluster.Ctl(command).code, 0);
  const Subprocess::Exit resumed = cluster.Ctl({"resume", "small", "--watch"});
  ASSERT_EQ(resumed.code, 0) << resumed.error;
  EXPECT_THAT(resumed.out, HasSubstr("step 8/12"));
  EXPECT_EQ(cluster.JobField("small", "checkpoint_step"), "12");
  const Subprocess::Exit over = cluster.Ctl({"resume", "small"});
  EXPECT_EQ(over.code, 5);
  EXPECT_THAT(over.error, HasSubstr("has done all 12 steps"));
  const std::string out = cluster.folder() + "/exported";
  const Subprocess::Exit exported = cluster.Ctl({"export", "small", "--to", out});
  EXPECT_EQ(exported.code, 0) << exported.error;
  EXPECT_TRUE(std::filesystem::exists(out + "/model.safetensors"));
  EXPECT_TRUE(std::filesystem::exists(out + "/config.json"));
  EXPECT_NE(cluster.Ctl({"export", "small", "--to", out}).code, 0);  // it is there already
}

TEST(Recovery, LogsAndWatchesGoOnWhereTheyWereWhenTheCoordinatorIsBack) {
  testing::TempFolder state;
  Cluster cluster({.workers = 1, .rank_program = "metp-fake-rank", .coordinator = {"--state", state.path()}});
  const std::string go = cluster.folder() + "/go";
  const std::string file = cluster.ScriptedJob(
      "job", 1, "all: flood 3000\nall: steps 5\nall: await " + go + "\nall: print the end\nall: steps 15\n");
  ASSERT_EQ(cluster.Ctl({"submit", "-f", file}).code, 0);
  const auto logs = cluster.StartCtl({"logs", "job", "-f", "-r", "0"});
  const auto watch = cluster.StartCtl({"watch", "job", "-o", "json"});
  ASSERT_NE(logs->ReadUntil("line 1000"), "");
  ASSERT_NE(watch->ReadUntil("\"step\":3"), "");
  for (int i = 0; i < 2; ++i) {
    cluster.coordinator().Signal(SIGKILL);
    cluster.coordinator().Wait();
    cluster.RestartCoordinator();
    ASSERT_NE(cluster.coordinator().ReadUntil("listening on"), "");
  }
  std::ofstream(go).flush();
  const Subprocess::Exit rest = logs->Wait();
  EXPECT_EQ(rest.code, 0) << rest.error;
  std::istringstream lines(rest.out);
  int number = 1001;
  for (std::string line; std::getline(lines, line) && line != "the end";)
    EXPECT_EQ(line, "line " + std::to_string(number++));
  EXPECT_EQ(number, 3000);
  const Subprocess::Exit steps = watch->Wait();
  EXPECT_EQ(steps.code, 0) << steps.error;
  std::istringstream points(steps.out);
  int step = 4;
  for (std::string line; std::getline(points, line);) {
    const nlohmann::json point = nlohmann::json::parse(line);
    if (!point.contains("step")) continue;
    EXPECT_EQ(point["step"], step++);
  }
  EXPECT_EQ(step, 21);
  // And all of it is kept after the end, and through another restart.
  cluster.coordinator().Signal(SIGKILL);
  cluster.RestartCoordinator();
  ASSERT_NE(cluster.coordinator().ReadUntil("listening on"), "");
  const Subprocess::Exit kept = cluster.Ctl({"logs", "job", "-r", "0"});
  EXPECT_EQ(std::count(kept.out.begin(), kept.out.end(), '\n'), 3001);
}

TEST(Recovery, ACancelledJobLeavesNoUnfinishedCheckpoint) {
  Cluster cluster(Quick());
  ASSERT_EQ(cluster.Ctl(Submit(cluster, 100000, {"checkpoint.every_steps=1"})).code, 0);
  AwaitStep(cluster, "1");
  EXPECT_EQ(cluster.Ctl({"cancel", "small"}).code, 0);
  for (const auto& entry : std::filesystem::directory_iterator(cluster.folder() + "/saved"))
    EXPECT_EQ(entry.path().filename().string().find(".partial"), std::string::npos) << entry.path();
}

TEST(Recovery, AJobShrinksToTheWorkersThatAreLeft) {
  Cluster cluster(Quick({"--replan-after-ms", "300"}));
  ASSERT_EQ(cluster.Ctl(Submit(cluster, 40, {"parallel.min_degree=2"})).code, 0);
  AwaitStep(cluster, "12");
  cluster.worker(2).Signal(SIGTERM);
  EXPECT_EQ(cluster.worker(2).Wait().code, 0);
  const Subprocess::Exit watch = cluster.Ctl({"watch", "small"});
  EXPECT_EQ(watch.code, 0) << watch.error << cluster.Ctl({"events", "small"}).out;
  EXPECT_THAT(cluster.Ctl({"events", "small"}).out,
              HasSubstr("planned again, on the 3 workers that are there: 3 ranks"));
  const std::vector<double> losses = Losses(cluster, "small"),
                            alone = LossesAlone(cluster.folder() + "/job.yaml");
  ASSERT_EQ(losses.size(), alone.size());
  for (size_t i = 0; i < alone.size(); ++i) EXPECT_NEAR(losses[i], alone[i], 1e-3) << "step " << i + 1;
}

}  // namespace
}  // namespace metp
