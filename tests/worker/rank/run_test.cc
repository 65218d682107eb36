// `metp-rank run` as a user runs it: the program itself, its JSON, its exit codes, and what happens when a rank is killed.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "nlohmann/json.hpp"
#include "tests/support/subprocess.h"
#include "tests/support/temp_folder.h"

namespace metp::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class RunCommand : public ::testing::Test {
 protected:
  RunCommand() : job_(folder_.path() + "/job.yaml") {
    std::ofstream text(folder_.path() + "/text.txt");
    for (int i = 0; i < 300; ++i)
      text << "line " << i << " of a text that a small model can learn by heart\n";
    std::ofstream(job_) << "name: small\n"
                           "model: {family: gpt2, layers: 2, hidden: 24, heads: 4, ffn: 40}\n"
                           "data: {source: text.txt, sequence_length: 120}\n"
                           "train: {steps: 4, sequences_per_step: 2, learning_rate: 1e-2}\n";
  }

  std::vector<std::string> Command(const std::vector<std::string>& arguments) const {
    std::vector<std::string> command = {std::string(METP_BINARY_DIR) + "/metp-rank", "run", "-f", job_};
    command.insert(command.end(), arguments.begin(), arguments.end());
    return command;
  }
  nlohmann::json Json(std::vector<std::string> arguments) const {
    arguments.insert(arguments.end(), {"-o", "json"});
    const Subprocess::Exit exit = RunProgram(Command(arguments));
    EXPECT_EQ(exit.code, 0) << exit.error;
    return nlohmann::json::parse(exit.out);
  }

  TempFolder folder_;
  const std::string job_;
};

TEST_F(RunCommand, GivesTheSameLossesByThreadsAndByProcesses) {
  const nlohmann::json one = Json({"--ranks", "1"});
  for (const char* comm : {"local", "gloo"}) {
    const nlohmann::json three = Json({"--ranks", "3", "--comm", comm, "--threads", "1"});
    ASSERT_EQ(three["losses"].size(), 4u) << comm;
    for (int i = 0; i < 4; ++i) {
      EXPECT_NEAR(three["losses"][i].get<double>(), one["losses"][i].get<double>(), 1e-4) << comm;
    }
  }
}

TEST_F(RunCommand, ReportsWhatItMeasured) {
  const nlohmann::json report = Json({"--ranks", "2", "--comm", "gloo"});
  EXPECT_EQ(report["first_step"], 1);
  EXPECT_EQ(report["grad_norms"].size(), 4u);
  EXPECT_EQ(report["step_seconds"].size(), 4u);
  EXPECT_GT(report["tokens_per_second"].get<double>(), 0);
  EXPECT_GT(report["sgemm_flops_per_second"].get<double>(), 1e8);
  EXPECT_GT(report["mfu"].get<double>(), 0);
  EXPECT_LT(report["mfu"].get<double>(), 1);
  EXPECT_GE(report["overlap"].get<double>(), 0);
  EXPECT_LE(report["overlap"].get<double>(), 1);
  ASSERT_EQ(report["ranks"].size(), 2u);
  for (const nlohmann::json& rank : report["ranks"]) {
    int64_t sum = 0;
    for (const auto& [category, bytes] : rank["peak_bytes_by_category"].items()) sum += bytes.get<int64_t>();
    EXPECT_EQ(rank["peak_bytes"], sum);
    EXPECT_GT(rank["sent_bytes"], 0);
    EXPECT_GT(rank["passes"]["mlp_forward"]["communication_seconds"].get<double>(), 0);
  }
  EXPECT_TRUE(Json({"--ranks", "1"})["overlap"].is_null());
}

TEST_F(RunCommand, NamesTheRankThatWasKilledAndLeavesNone) {
  Subprocess run(Command({"--ranks", "3", "--comm", "gloo", "--set", "train.steps=1000000"}));
  ASSERT_NE(run.ReadUntil("step 1 "), "");
  std::vector<pid_t> ranks;
  for (const auto& thread :
       std::filesystem::directory_iterator("/proc/" + std::to_string(run.pid()) + "/task")) {
    std::ifstream list(thread.path() / "children");
    for (pid_t pid; list >> pid;) ranks.push_back(pid);
  }
  ASSERT_EQ(ranks.size(), 3u);
  kill(ranks[1], SIGKILL);
  const Subprocess::Exit exit = run.Wait();
  EXPECT_EQ(exit.code, 1);
  EXPECT_THAT(exit.error, HasSubstr(": killed by signal 9 (SIGKILL)"));
  for (const pid_t pid : ranks) EXPECT_EQ(kill(pid, 0), -1);
}

TEST_F(RunCommand, RefusesWhatIsWrongWithItsPlaceAndStartsNothing) {
  const auto error = [&](const std::vector<std::string>& arguments) {
    const Subprocess::Exit exit = RunProgram(Command(arguments));
    EXPECT_EQ(exit.code, 2);
    EXPECT_EQ(exit.out, "");
    return exit.error;
  };
  EXPECT_THAT(error({"--set", "train.stepz=3"}),
              HasSubstr("train.stepz: unknown key, did you mean 'steps'?"));
  EXPECT_THAT(error({"--set", "data.source=/nowhere"}),
              HasSubstr("--set data.source=/nowhere: data.source: /nowhere: no such file or folder"));
  EXPECT_THAT(error({"--set", "data.sequence_length=1000000"}),
              StartsWith("metp-rank: " + job_ + ":3: data.source: found "));
  EXPECT_NE(error({"--ranks", "0"}), "");
  std::ofstream(folder_.path() + "/tokens.bin", std::ios::binary) << std::string(1000, '\x7f');
  EXPECT_THAT(error({"--set", "data.source=tokens.bin", "--set", "model.vocab=100"}),
              HasSubstr("is beyond the vocabulary of 100 (model.vocab)"));
}

}  // namespace
}  // namespace metp::testing
