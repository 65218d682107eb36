// The whole system on loopback, real programs, with ranks that do what a script says: lives and deaths of
// jobs.

#include <gmock/gmock.h>

#include <csignal>
#include <fstream>

#include "nlohmann/json.hpp"
#include "tests/support/await_file.h"
#include "tests/support/cluster.h"
#include "tests/support/http_get.h"

namespace metp {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

Cluster::Options Fake(int workers, std::vector<std::string> coordinator = {}) {
  return {.workers = workers, .rank_program = "metp-fake-rank", .coordinator = std::move(coordinator)};
}

/// The id that `metpctl submit` printed.
std::string Id(const Subprocess::Exit& exit) {
  EXPECT_EQ(exit.code, 0) << exit.error;
  return exit.out.substr(0, exit.out.find('\n'));
}

TEST(Services, TakeAJobFromItsFileToItsSummary) {
  Cluster cluster(Fake(4));
  const std::string file = cluster.ScriptedJob("smoke", 4, "all: print hello\nall: meet\nall: steps 20\n");
  const Subprocess::Exit watch = cluster.Ctl({"submit", "-f", file, "--watch"});
  EXPECT_EQ(watch.code, 0) << watch.error;
  EXPECT_THAT(watch.out, HasSubstr("step 1/20  loss 1.0000"));
  EXPECT_THAT(watch.out, HasSubstr("step 20/20  loss 0.0500"));
  for (const char* part : {"Job smoke-1 SUCCEEDED", "Loss: 1.0000 at step 1, 0.0500 at step 20",
                           "4,000 tokens/s", "mlp.forward", "75.0 %", "6.0 MiB"}) {
    EXPECT_THAT(watch.out, HasSubstr(part));
  }
  EXPECT_THAT(watch.out, HasSubstr(cluster.http()));
  EXPECT_THAT(watch.out, HasSubstr(cluster.worker_metrics(3)));

  const Subprocess::Exit logs = cluster.Ctl({"logs", "smoke", "--rank", "2"});
  EXPECT_EQ(logs.out, "hello\n");
  const Subprocess::Exit beyond = cluster.Ctl({"logs", "smoke", "--rank", "4"});
  EXPECT_EQ(beyond.code, 6);
  EXPECT_THAT(beyond.error, HasSubstr("rank: found 4, expected 0 to 3, the ranks of smoke-1"));
  EXPECT_THAT(cluster.Ctl({"describe", "smoke-1"}).out, AllOf(HasSubstr("SUCCEEDED"), HasSubstr("cpu-3")));
  EXPECT_THAT(cluster.Ctl({"get"}).out, HasSubstr("smoke-1  SUCCEEDED"));

  // A late watcher sees the same, as data.
  const Subprocess::Exit late = cluster.Ctl({"watch", "smoke", "-o", "json"});
  EXPECT_EQ(late.code, 0);
  EXPECT_EQ(std::count(late.out.begin(), late.out.end(), '\n'), 21);
  EXPECT_THAT(late.out, StartsWith("{\"step\":1,\"loss\":1,"));

  const std::string metrics = HttpGet(cluster.worker_metrics(3)).body;
  EXPECT_THAT(metrics, HasSubstr("metp_step{job=\"smoke-1\",rank=\"3\"} 20\n"));
  EXPECT_THAT(metrics, HasSubstr("metp_memory_peak_bytes{job=\"smoke-1\",rank=\"3\"} 6291456\n"));
  EXPECT_THAT(HttpGet(cluster.http() + "/metrics").body, HasSubstr("metp_jobs{state=\"succeeded\"} 1\n"));
}

TEST(Services, FailWithTheCauseOfTheFirstDeathAndRunTheNextJob) {
  Cluster cluster(Fake(4));
  const std::string dies =
      cluster.ScriptedJob("dies", 4, "2: steps 1\n2: kill 9\n0: fail 14 the neighbour is gone\nall: hang\n");
  const std::string next = cluster.ScriptedJob("next", 4, "all: steps 3\n");
  const auto watch = cluster.StartCtl({"submit", "-f", dies, "--watch"});
  ASSERT_NE(watch->ReadErrorUntil("submitted dies-1"), "");
  const std::string queued = Id(cluster.Ctl({"submit", "-f", next}));
  const Subprocess::Exit failed = watch->Wait();
  EXPECT_EQ(failed.code, 1);
  EXPECT_THAT(failed.out,
              HasSubstr("Job dies-1 FAILED: rank 2 on worker cpu-2: killed by signal 9 (SIGKILL)"));
  EXPECT_EQ(cluster.Ctl({"watch", queued}).code, 0);
  EXPECT_THAT(cluster.Ctl({"workers"}).out, Not(HasSubstr("rank ")));
}

TEST(Services, KillARankFromOutsideAndNameTheSignal) {
  Cluster cluster(Fake(2));
  const std::string id =
      Id(cluster.Ctl({"submit", "-f", cluster.ScriptedJob("job", 2, "all: print up\nall: hang\n")}));
  const auto logs = cluster.StartCtl({"logs", id, "-f", "-r", "1"});
  ASSERT_NE(logs->ReadUntil("up"), "");
  kill(std::stoi(cluster.JobField(id, "ranks.1.pid")), SIGKILL);
  EXPECT_EQ(cluster.Ctl({"watch", id}).code, 1);
  EXPECT_EQ(cluster.JobField(id, "reason"), "rank 1 on worker cpu-1: killed by signal 9 (SIGKILL)");
  EXPECT_EQ(logs->Wait().code, 0);
}

TEST(Services, CancelWhenTheProcessesAreGone) {
  Cluster cluster({.workers = 2, .rank_program = "metp-fake-rank", .worker = {"--stop-grace-ms", "100"}});
  const std::string file =
      cluster.ScriptedJob("stubborn", 2, "all: ignore-term\nall: print deaf\nall: hang\n");
  const std::string running = Id(cluster.Ctl({"submit", "-f", file})),
                    waiting = Id(cluster.Ctl({"submit", "-f", file}));
  for (const char* rank : {"0", "1"}) {
    ASSERT_NE(cluster.StartCtl({"logs", running, "-f", "-r", rank})->ReadUntil("deaf"), "");
  }
  const pid_t pid = std::stoi(cluster.JobField(running, "ranks.0.pid"));
  const auto watch = cluster.StartCtl({"watch", running});
  ASSERT_NE(watch->ReadErrorUntil("RUNNING"), "");

  const Subprocess::Exit queued = cluster.Ctl({"cancel", waiting});
  EXPECT_EQ(queued.code, 0) << queued.error;
  EXPECT_EQ(queued.out, waiting + " CANCELLED\n");
  const Subprocess::Exit cancelled = cluster.Ctl({"cancel", running});
  EXPECT_EQ(cancelled.code, 0) << cancelled.error;
  EXPECT_EQ(cancelled.out, running + " CANCELLED\n");
  EXPECT_EQ(kill(pid, 0), -1);
  EXPECT_EQ(watch->Wait().code, 4);
  EXPECT_THAT(cluster.Ctl({"workers"}).out, Not(HasSubstr("rank ")));
  EXPECT_EQ(cluster.Ctl({"cancel", running}).code, 0);  // again: as wished already
}

TEST(Services, LeaveTheJobRunningWhenItsWatcherIsInterrupted) {
  Cluster cluster(Fake(1));
  const std::string go = cluster.folder() + "/go";
  const std::string file =
      cluster.ScriptedJob("job", 1, "all: steps 1\nall: await " + go + "\nall: steps 1\n");
  const auto watch = cluster.StartCtl({"submit", "-f", file, "--watch"});
  ASSERT_NE(watch->ReadUntil("step 1/20"), "");
  watch->Signal(SIGINT);
  const Subprocess::Exit interrupted = watch->Wait();
  EXPECT_EQ(interrupted.code, 130);
  EXPECT_THAT(interrupted.error, HasSubstr("metpctl cancel job-1"));
  std::ofstream(go).flush();
  EXPECT_EQ(cluster.Ctl({"watch", "job-1"}).code, 0);
}

TEST(Services, RefuseWhatCannotRunAndSayWhy) {
  Cluster cluster(Fake(1));
  const std::string file = cluster.ScriptedJob("job", 8, "");
  const Subprocess::Exit degree = cluster.Ctl({"submit", "-f", file});
  EXPECT_EQ(degree.code, 5);
  EXPECT_THAT(degree.error, StartsWith(file + ":"));
  EXPECT_THAT(degree.error,
              HasSubstr("parallel.degree: found 8, expected at most 1, the number of registered workers\n"));
  EXPECT_EQ(degree.out, "");

  const std::string bad = cluster.folder() + "/bad.yaml";
  std::ofstream(bad)
      << "name: job\nmodel: {family: llama, layers: 1, hidden: 16, heads: 2, ffn: 32}\n"
      << "data: {source: [text.txt], sequence_length: 32}\ntrain: {steps: -1, learning_rate: 0.1}\n";
  const Subprocess::Exit steps = cluster.Ctl({"submit", "-f", bad});
  EXPECT_EQ(steps.code, 2);
  EXPECT_THAT(steps.error, StartsWith(bad + ":4: train.steps: found -1, expected"));
  EXPECT_EQ(cluster.Ctl({"submit", "-f", cluster.folder() + "/none.yaml"}).code, 6);
  EXPECT_EQ(cluster.Ctl({"watch", "nobody"}).code, 6);
  const Subprocess::Exit dance = cluster.Ctl({"dance"});
  EXPECT_EQ(dance.code, 2);
  EXPECT_THAT(dance.error, StartsWith("metpctl: unknown verb 'dance'"));
  EXPECT_EQ(cluster.Ctl({"plan", "-f", file, "--profile", "h9"}).code, 6);
  EXPECT_EQ(cluster.Ctl({"--coordinator", "127.0.0.1:1", "get"}).code, 3);
  EXPECT_EQ(nlohmann::json::parse(cluster.Ctl({"get", "-o", "json"}).out)["jobs"], nlohmann::json::array());
}

TEST(Services, FailTheJobOfAWorkerThatIsKilled) {
  Cluster cluster(Fake(2, {"--suspect-after-ms", "2000", "--lease-ms", "3000"}));
  const std::string id =
      Id(cluster.Ctl({"submit", "-f", cluster.ScriptedJob("job", 2, "all: print up\nall: hang\n")}));
  ASSERT_NE(cluster.StartCtl({"logs", id, "-f", "-r", "1"})->ReadUntil("up"), "");
  cluster.worker(1).Signal(SIGKILL);
  EXPECT_EQ(cluster.Ctl({"watch", id}).code, 1);
  EXPECT_THAT(cluster.JobField(id, "reason"), HasSubstr("rank 1 on worker cpu-1: worker cpu-1 is lost"));
  EXPECT_THAT(cluster.Ctl({"workers"}).out, HasSubstr("LOST"));
}

TEST(Services, FailTheJobAtOnceOfAWorkerThatIsRestarted) {
  Cluster cluster(Fake(1));
  const std::string id =
      Id(cluster.Ctl({"submit", "-f", cluster.ScriptedJob("job", 1, "all: print up\nall: hang\n")}));
  ASSERT_NE(cluster.StartCtl({"logs", id, "-f"})->ReadUntil("up"), "");
  const auto watch = cluster.StartCtl({"watch", id});
  cluster.worker(0).Signal(SIGKILL);
  const auto again = cluster.StartWorker("cpu-0");
  EXPECT_EQ(watch->Wait().code, 1);
  EXPECT_THAT(cluster.JobField(id, "reason"), HasSubstr("worker cpu-0 was restarted"));
}

TEST(Services, LetAWorkerGoAndStopItsRanks) {
  Cluster cluster(Fake(2));
  const std::string id =
      Id(cluster.Ctl({"submit", "-f", cluster.ScriptedJob("job", 2, "all: print up\nall: hang\n")}));
  for (const char* rank : {"0", "1"}) {
    ASSERT_NE(cluster.StartCtl({"logs", id, "-f", "-r", rank})->ReadUntil("up"), "");
  }
  cluster.worker(0).Signal(SIGTERM);
  EXPECT_EQ(cluster.worker(0).Wait().code, 0);
  EXPECT_THAT(cluster.Ctl({"workers"}).out, Not(HasSubstr("cpu-0")));
  // The job goes back to the queue, at no cost, and starts again when it can.
  const auto watch = cluster.StartCtl({"watch", id});
  ASSERT_NE(watch->ReadErrorUntil("needs 2 workers, 1 is there"), "");
  EXPECT_THAT(cluster.Ctl({"events", id}).out, HasSubstr("rank 0 on worker cpu-0: killed by signal 15"));
  cluster.RestartWorker(0);
  ASSERT_NE(watch->ReadErrorUntil("RUNNING"), "");
  EXPECT_EQ(cluster.JobField(id, "attempt"), id + "/2");
}

TEST(Services, KeepARankThroughAFrozenCoordinator) {
  Cluster cluster(Fake(1));
  const std::string go = cluster.folder() + "/go", done = cluster.folder() + "/done";
  const std::string id = Id(cluster.Ctl(
      {"submit", "-f",
       cluster.ScriptedJob(
           "job", 1, "all: print up\nall: await " + go + "\nall: steps 20\nall: touch " + done + "\n")}));
  ASSERT_NE(cluster.StartCtl({"logs", id, "-f"})->ReadUntil("up"), "");
  cluster.coordinator().Signal(SIGSTOP);
  std::ofstream(go).flush();
  // The rank does all its steps while nobody listens.
  AwaitFile(done);
  cluster.coordinator().Signal(SIGCONT);
  EXPECT_EQ(cluster.Ctl({"watch", id}).code, 0);
  EXPECT_EQ(cluster.JobField(id, "step"), "20");
}

TEST(Services, DropOutputAndSaySo) {
  Cluster cluster(Fake(1));
  const std::string id =
      Id(cluster.Ctl({"submit", "-f", cluster.ScriptedJob("job", 1, "all: flood 100000\n")}));
  const Subprocess::Exit watch = cluster.Ctl({"watch", id});
  EXPECT_EQ(watch.code, 0);
  const Subprocess::Exit logs = cluster.Ctl({"logs", id});
  EXPECT_THAT(logs.error, HasSubstr("lines dropped"));
  EXPECT_THAT(logs.out, HasSubstr("[0] line 99999\n"));
}

TEST(Services, KillARankThatANewCoordinatorDoesNotKnow) {
  Cluster cluster(Fake(1));
  const std::string id =
      Id(cluster.Ctl({"submit", "-f", cluster.ScriptedJob("job", 1, "all: print up\nall: hang\n")}));
  ASSERT_NE(cluster.StartCtl({"logs", id, "-f"})->ReadUntil("up"), "");
  const pid_t pid = std::stoi(cluster.JobField(id, "ranks.0.pid"));
  const auto watch = cluster.StartCtl({"watch", id, "--patience", "0"});
  ASSERT_NE(watch->ReadErrorUntil("RUNNING"), "");
  cluster.coordinator().Signal(SIGKILL);
  const Subprocess::Exit lost = watch->Wait();
  EXPECT_EQ(lost.code, 3);
  EXPECT_THAT(lost.error, HasSubstr("metpctl watch " + id));
  ASSERT_NE(cluster.worker(0).ReadErrorUntil("no session with"), "");
  EXPECT_EQ(kill(pid, 0), 0);  // it trains on

  Subprocess again(
      {Cluster::Program("metp-coordinator"), "--listen", cluster.address(), "--http", "127.0.0.1:0"});
  ASSERT_NE(cluster.worker(0).ReadUntil(" ready: "), "");
  // A job for the same worker starts when the old process is gone.
  EXPECT_EQ(cluster.Ctl({"submit", "-f", cluster.ScriptedJob("next", 1, "all: steps 1\n"), "--watch"}).code,
            0);
  EXPECT_EQ(kill(pid, 0), -1);
}

TEST(Services, StopCleanlyOnSigterm) {
  Cluster cluster(Fake(1));
  cluster.coordinator().Signal(SIGTERM);
  EXPECT_EQ(cluster.coordinator().Wait().code, 0);
  EXPECT_NE(cluster.worker(0).ReadErrorUntil("no session with"), "");
  cluster.worker(0).Signal(SIGTERM);
  EXPECT_EQ(cluster.worker(0).Wait().code, 0);
}

}  // namespace
}  // namespace metp
