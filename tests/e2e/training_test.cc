// The whole system with real ranks: what a cluster trains equals what one process trains alone.

#include <gmock/gmock.h>

#include <csignal>
#include <fstream>
#include <sstream>

#include "nlohmann/json.hpp"
#include "tests/e2e/small_job.h"
#include "tests/support/http_get.h"

namespace metp {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// The value of the first sample whose line begins with `series`.
double Sample(const std::string& metrics, const std::string& series) {
  const size_t at = metrics.find("\n" + series + " ");
  EXPECT_NE(at, std::string::npos) << series << " is not in\n" << metrics;
  return at == std::string::npos ? NAN : std::stod(metrics.substr(at + series.size() + 2));
}

TEST(Training, OnFourWorkersEqualsTrainingOnOne) {
  Cluster cluster({});
  const std::string file = WriteJob(cluster.folder(), 8);
  const Subprocess::Exit watch = cluster.Ctl({"submit", "-f", file, "--watch"});
  ASSERT_EQ(watch.code, 0) << watch.error << cluster.Ctl({"logs", "small"}).out;
  EXPECT_THAT(watch.out,
              AllOf(HasSubstr("Job small-1 SUCCEEDED"), HasSubstr("tokens/s"), HasSubstr("weights")));

  const Subprocess::Exit alone =
      RunProgram({Cluster::Program("metp-rank"), "run", "-f", file, "--ranks", "1", "-o", "json"});
  ASSERT_EQ(alone.code, 0) << alone.error;
  const nlohmann::json reference = nlohmann::json::parse(alone.out)["losses"];
  ASSERT_EQ(reference.size(), 8u);
  const Subprocess::Exit steps = cluster.Ctl({"watch", "small", "-o", "json"});
  size_t at = 0;
  for (int i = 0; i < 8; ++i) {
    const size_t end = steps.out.find('\n', at);
    const nlohmann::json step = nlohmann::json::parse(steps.out.substr(at, end - at));
    EXPECT_EQ(step["step"], i + 1);
    // Sums in another order: rounding only.
    EXPECT_NEAR(step["loss"].get<double>(), reference[i].get<double>(), 1e-3);
    at = end + 1;
  }
  EXPECT_LT(reference.back().get<double>(), reference.front().get<double>());

  const std::string metrics = HttpGet(cluster.worker_metrics(2)).body;
  const std::string labels = "{job=\"small-1\",rank=\"2\"";
  EXPECT_EQ(Sample(metrics, "metp_step" + labels + "}"), 8);
  EXPECT_EQ(Sample(metrics, "metp_tokens_total" + labels + "}"), 8 * 256);
  EXPECT_NEAR(Sample(metrics, "metp_loss" + labels + "}"), reference.back().get<double>(), 1e-3);
  EXPECT_GT(Sample(metrics, "metp_sent_bytes_total" + labels + "}"), 0);
  EXPECT_GT(Sample(metrics, "metp_memory_bytes" + labels + ",category=\"weights\"}"), 0);
  EXPECT_EQ(std::to_string(static_cast<int64_t>(Sample(metrics, "metp_memory_peak_bytes" + labels + "}"))),
            cluster.JobField("small", "ranks.2.peak_bytes"));
  const std::string coordinator = HttpGet(cluster.http() + "/metrics").body;
  EXPECT_EQ(Sample(coordinator, "metp_jobs{state=\"succeeded\"}"), 1);
  EXPECT_EQ(Sample(coordinator, "metp_workers{state=\"ready\"}"), 4);
}

TEST(Training, OnTwoRingsEqualsTrainingOnOne) {
  Cluster cluster({});
  const std::string file = WriteJob(cluster.folder(), 6);
  const std::vector<std::string> batch = {"--set", "train.sequences_per_step=4"};
  const auto submit = [&](std::vector<std::string> arguments) {
    std::vector<std::string> command = {"submit", "-f", file, "--watch"};
    command.insert(command.end(), batch.begin(), batch.end());
    command.insert(command.end(), arguments.begin(), arguments.end());
    const Subprocess::Exit exit = cluster.Ctl(command);
    EXPECT_EQ(exit.code, 0) << exit.error;
    return Losses(cluster, "small");
  };
  const std::vector<double> one = submit({"--set", "parallel.degree=1"});
  const std::vector<double> two = submit({"--set", "parallel.degree=2", "--set", "parallel.rings=2", "--set",
                                          "parallel.offload=[activations, optimizer]"});
  ASSERT_EQ(one.size(), 6u);
  ASSERT_EQ(two.size(), 6u);
  for (size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(two[i], one[i], 1e-3) << "step " << i + 1;
}

/// Kills one rank of a long job with these settings: the job fails with that as its cause, and the workers are free.
void ExpectThatAKilledRankEndsAll(const std::string& rank, const std::vector<std::string>& settings) {
  Cluster cluster({});
  const std::string file = WriteJob(cluster.folder(), 100000);
  std::vector<std::string> submit = {"submit", "-f", file, "--watch", "--set", "max_restarts=0"};
  for (const std::string& setting : settings) submit.insert(submit.end(), {"--set", setting});
  const auto watch = cluster.StartCtl(submit);
  ASSERT_NE(watch->ReadUntil("step 1/"), "");
  kill(std::stoi(cluster.JobField("small", "ranks." + rank + ".pid")), SIGKILL);
  const Subprocess::Exit failed = watch->Wait();
  EXPECT_EQ(failed.code, 1);
  EXPECT_THAT(failed.out, HasSubstr("Job small-1 FAILED: rank " + rank + " on worker cpu-" + rank +
                                    ": killed by signal 9 (SIGKILL)"));
  EXPECT_EQ(cluster.Ctl({"submit", "-f", file, "--set", "train.steps=2", "--watch"}).code, 0);
}

TEST(Training, ARankKilledInOneOfTwoRingsEndsBoth) {
  ExpectThatAKilledRankEndsAll("3", {"parallel.degree=2", "parallel.rings=2", "train.sequences_per_step=2"});
}

TEST(Training, AJobThatDiedAndIsSubmittedAgainGoesOnFromItsCheckpoint) {
  Cluster cluster({});
  const std::string file = WriteJob(cluster.folder(), 40);
  const std::vector<std::string> saved = {"--set", "checkpoint.directory=" + cluster.folder() + "/saved",
                                          "--set", "checkpoint.every_steps=5",
                                          "--set", "max_restarts=0"};
  const std::vector<double> reference = LossesAlone(file);
  ASSERT_FALSE(reference.empty());

  std::vector<std::string> submit = {"submit", "-f", file, "--watch"};
  submit.insert(submit.end(), saved.begin(), saved.end());
  const auto watch = cluster.StartCtl(submit);
  ASSERT_NE(watch->ReadUntil("step 12/"),
            "");  // the checkpoint of step 10 becomes whole within a step or two
  kill(std::stoi(cluster.JobField("small", "ranks.1.pid")), SIGKILL);
  EXPECT_EQ(watch->Wait().code, 1);

  const Subprocess::Exit again = cluster.Ctl(submit);
  ASSERT_EQ(again.code, 0) << again.error;
  std::istringstream lines(cluster.Ctl({"watch", "small", "-o", "json"}).out);
  int step = 0, first = 0;
  for (std::string line; std::getline(lines, line);) {
    const nlohmann::json point = nlohmann::json::parse(line);
    if (!point.contains("step")) continue;
    if (first == 0) first = point["step"], step = first - 1;
    EXPECT_EQ(point["step"], ++step);
    EXPECT_EQ(point["loss"].get<double>(), reference[step - 1]) << "step " << step;
  }
  EXPECT_THAT(first, ::testing::AnyOf(6, 11, 16));
  EXPECT_EQ(step, 40);
  EXPECT_THAT(cluster.Ctl({"logs", "small"}).out, HasSubstr("going on from "));
}

TEST(Training, ACoordinatorKilledTwiceInTheMiddleLosesNothing) {
  testing::TempFolder state;
  Cluster::Options options;
  options.coordinator = {"--state", state.path()};
  Cluster cluster(options);
  const std::string file = WriteJob(cluster.folder(), 60);
  const std::vector<double> reference = LossesAlone(file);
  ASSERT_FALSE(reference.empty());

  const Subprocess::Exit submitted = cluster.Ctl({"submit", "-f", file});
  ASSERT_EQ(submitted.code, 0) << submitted.error;
  std::unique_ptr<Subprocess> again;
  for (const char* step : {"step 3/", "step 20/"}) {
    ASSERT_NE(cluster.StartCtl({"watch", "small"})->ReadUntil(step), "");
    (again ? *again : cluster.coordinator()).Signal(SIGKILL);
    (again ? *again : cluster.coordinator()).Wait();
    again = std::make_unique<Subprocess>(std::vector<std::string>{Cluster::Program("metp-coordinator"),
                                                                  "--listen", cluster.address(), "--http",
                                                                  "127.0.0.1:0", "--state", state.path()});
    ASSERT_NE(again->ReadUntil("listening on"), "");
  }
  const Subprocess::Exit watch = cluster.Ctl({"watch", "small"});
  EXPECT_EQ(watch.code, 0) << watch.error << cluster.Ctl({"events", "small"}).out;
  EXPECT_EQ(Losses(cluster, "small"), reference);  // every step once, and the same bits
  EXPECT_THAT(cluster.Ctl({"events", "small"}).out,
              AllOf(HasSubstr("submitted; planned: 4 ranks"), HasSubstr("attempt 1 starts on cpu-0, cpu-1"),
                    HasSubstr("SUCCEEDED: all 60 steps done")));
}

TEST(Training, ARankKilledInTheMiddleFailsTheJobAndFreesTheWorkers) { ExpectThatAKilledRankEndsAll("2", {}); }

TEST(Training, ACancelledJobLeavesNoProcess) {
  Cluster cluster({});
  const std::string file = WriteJob(cluster.folder(), 100000);
  const auto watch = cluster.StartCtl({"submit", "-f", file, "--watch"});
  ASSERT_NE(watch->ReadUntil("step 1/"), "");
  std::vector<pid_t> pids;
  for (const char* rank : {"0", "1", "2", "3"}) {
    pids.push_back(std::stoi(cluster.JobField("small", std::string("ranks.") + rank + ".pid")));
  }
  EXPECT_EQ(cluster.Ctl({"cancel", "small"}).code, 0);
  for (const pid_t pid : pids) EXPECT_EQ(kill(pid, 0), -1);
  EXPECT_EQ(watch->Wait().code, 4);
}

TEST(Training, DataThatIsNotThereIsRefusedWithItsPlaceInTheFile) {
  Cluster cluster({});
  const std::string file = WriteJob(cluster.folder(), 2);
  std::remove((cluster.folder() + "/text.txt").c_str());
  const Subprocess::Exit refused = cluster.Ctl({"submit", "-f", file});
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.error, ::testing::StartsWith(file + ":3: data.source: "));
  EXPECT_THAT(refused.error, HasSubstr("text.txt: no such file or folder"));
  EXPECT_EQ(refused.out, "");
}

TEST(Training, DataThatIsGoneWhenAJobStartsIsItsCause) {
  Cluster cluster({});
  const std::string file = WriteJob(cluster.folder(), 100000);
  const std::string other = cluster.folder() + "/other.txt";
  std::ofstream(other) << std::string(1000, 'x');
  ASSERT_EQ(cluster.Ctl({"submit", "-f", file}).code, 0);  // takes all workers
  ASSERT_EQ(cluster.Ctl({"submit", "-f", file, "--set", "name=second", "--set", "data.source=" + other}).code,
            0);
  std::remove(other.c_str());
  ASSERT_EQ(cluster.Ctl({"cancel", "small"}).code, 0);
  const Subprocess::Exit failed = cluster.Ctl({"watch", "second"});
  EXPECT_EQ(failed.code, 1);
  EXPECT_THAT(failed.out, HasSubstr("data.source: " + other + ": no such file or folder"));
}

}  // namespace
}  // namespace metp
