// What a job file may say, overrides from the command line, and files on disk.

#include "proto/support/job_file.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/json_util.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "proto/support/job_json.h"
#include "tests/proto/support/file_folder.h"
#include "tests/proto/support/job_text.h"

namespace metp {
namespace {

using test::JobWith;
using test::kJob;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

v1::JobSpec Right(const std::string& text, const std::vector<std::string>& overrides = {}) {
  const absl::StatusOr<v1::JobSpec> job = ParseJob(text, "job.yaml", overrides);
  EXPECT_TRUE(job.ok()) << job.status() << "\n" << text;
  return job.value_or(v1::JobSpec());
}

std::string WrongOverride(const std::vector<std::string>& overrides,
                          const std::string& text = std::string(kJob)) {
  const absl::StatusOr<v1::JobSpec> job = ParseJob(text, "job.yaml", overrides);
  EXPECT_EQ(job.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(job.status().message());
}

TEST(JobFile, TakesNumbersInEveryDecimalForm) {
  const std::vector<std::pair<std::string, double>> forms = {
      {"3e-3", 3e-3}, {"1E-5", 1e-5}, {"10000", 10000}, {"0.5", 0.5},        {".5", 0.5},
      {"2.", 2},      {"+1e2", 100},  {"1e+2", 100},    {"1.25e-8", 1.25e-8}};
  for (const auto& [text, value] : forms) {
    EXPECT_EQ(Right(JobWith("learning_rate: 1e-3", "learning_rate: " + text)).train().learning_rate(), value)
        << text;
  }
}

TEST(JobFile, TakesIntegersUpToTheLimitsOfTheirType) {
  const v1::JobSpec job = Right(JobWith("steps: 10", "steps: 2147483647\n  seed: 9223372036854775807"));
  EXPECT_EQ(job.train().steps(), 2147483647);
  EXPECT_EQ(job.train().seed(), 9223372036854775807);
}

TEST(JobFile, TakesWordsForNumbers) {
  const auto parallel = [](const std::string& text) {
    return Right(std::string(kJob) + "parallel: " + text + "\n").parallel();
  };
  EXPECT_EQ(parallel("{head_groups: auto}").head_groups(), 0);
  EXPECT_EQ(parallel("{tile_rows: auto}").tile_rows(), 0);
  EXPECT_EQ(parallel("{tile_rows: none}").tile_rows(), -1);
  EXPECT_EQ(parallel("{tile_rows: \"none\", head_groups: 3}").tile_rows(), -1);
  EXPECT_EQ(parallel("{head_groups: 3}").head_groups(), 3);
}

TEST(JobFile, TakesAPathWhereAListOfPathsIsExpected) {
  EXPECT_THAT(Right(std::string(kJob)).data().source(), ElementsAre("corpus.txt"));
  EXPECT_THAT(Right(JobWith("source: corpus.txt", "source: [a.txt, 'b c', 5]")).data().source(),
              ElementsAre("a.txt", "b c", "5"));
}

TEST(JobFile, TakesQuotedAndPlainTexts) {
  EXPECT_EQ(Right(JobWith("name: small", "name: 2024")).name(), "2024");
  EXPECT_EQ(Right(JobWith("name: small", "name: \"true\"")).name(), "true");
  EXPECT_EQ(Right(JobWith("family: llama", "family: \"gpt2\"")).model().family(), v1::ModelSpec::FAMILY_GPT2);
  EXPECT_EQ(Right(JobWith("ffn: 96", "ffn: 96\n  causal: false")).model().causal(), false);
}

TEST(JobFile, TakesFlowStyleAndWindowsLineEndings) {
  std::string text(kJob);
  for (size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at += 2) {
    text.replace(at, 1, "\r\n");
  }
  EXPECT_EQ(Right(text).train().steps(), 10);
  EXPECT_EQ(Right("{name: a, model: {family: gpt2, layers: 1, hidden: 4, heads: 2, ffn: 8}, "
                  "data: {source: x, sequence_length: 4}, train: {steps: 3, learning_rate: 1}}")
                .train()
                .steps(),
            3);
}

TEST(JobFile, NormalizesWhatItReads) {
  const v1::JobSpec job = Right(std::string(kJob));
  v1::JobSpec again = job;
  NormalizeJob(again);
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(job, again));
  EXPECT_EQ(job.model().vocab(), 257);
  EXPECT_TRUE(ValidateJob(job).ok());
}

TEST(JobFile, AllowsAWarmUpLongerThanTheRun) {
  EXPECT_EQ(Right(JobWith("steps: 10", "steps: 10\n  warmup_steps: 20")).train().warmup_steps(), 20);
}

TEST(JobFile, LeavesRelativeSourcesOfATextAsTheyAre) {
  EXPECT_THAT(Right(JobWith("source: corpus.txt", "source: ../x")).data().source(), ElementsAre("../x"));
}

TEST(JobOverride, ReplacesAddsAndMakesSections) {
  const v1::JobSpec job =
      Right(std::string(kJob), {"train.steps=3", "train.betas=[0.8,0.99]", "parallel.degree=4",
                                "parallel.tile_rows=none", "data.source=[a, \"b\"]", "name=x"});
  EXPECT_EQ(job.train().steps(), 3);
  EXPECT_THAT(job.train().betas(), ElementsAre(0.8, 0.99));
  EXPECT_EQ(job.parallel().degree(), 4);
  EXPECT_EQ(job.parallel().tile_rows(), -1);
  EXPECT_THAT(job.data().source(), ElementsAre("a", "b"));
  EXPECT_EQ(job.name(), "x");
}

TEST(JobOverride, LastOneWins) {
  EXPECT_EQ(Right(std::string(kJob), {"train.steps=3", "train.steps=4"}).train().steps(), 4);
}

TEST(JobOverride, MayGiveARequiredKeyOrMendAWrongOne) {
  EXPECT_EQ(Right(JobWith("  steps: 10\n", ""), {"train.steps=3"}).train().steps(), 3);
  EXPECT_EQ(Right(JobWith("steps: 10", "steps: many"), {"train.steps=3"}).train().steps(), 3);
}

TEST(JobOverride, IsHeldToTheRulesOfTheFile) {
  EXPECT_EQ(WrongOverride({"train.steps=x"}),
            "--set train.steps=x: train.steps: found x, expected an integer of at least 1");
  EXPECT_EQ(WrongOverride({"train.steps=-1"}),
            "--set train.steps=-1: train.steps: found -1, expected an integer of at least 1");
  EXPECT_EQ(WrongOverride({"train.steps="}),
            "--set train.steps=: train.steps: found nothing, expected an integer of at least 1");
  EXPECT_EQ(WrongOverride({"train.step=1"}),
            "--set train.step=1: train.step: unknown key, did you mean 'steps'?");
  EXPECT_EQ(WrongOverride({"trian.steps=1"}),
            "--set trian.steps=1: trian: unknown key, did you mean 'train'?");
  EXPECT_EQ(WrongOverride({"train=1"}),
            "--set train=1: train: found 1, expected a section (steps, learning_rate)");
  EXPECT_EQ(WrongOverride({"train.steps.x=1"}),
            "--set train.steps.x=1: train.steps: found 10, expected a section");
  EXPECT_EQ(
      WrongOverride({"train.betas=[0.9,2]"}),
      "--set train.betas=[0.9,2]: train.betas[1]: found 2, expected a number of at least 0 and less than 1");
  EXPECT_EQ(WrongOverride({"model.kv_heads=3"}),
            "--set model.kv_heads=3: model.kv_heads: found 3, expected a divisor of model.heads (4)");
  EXPECT_EQ(WrongOverride({"train.betas=[0.9"}),
            "--set train.betas=[0.9: not valid YAML at column 1: end of sequence flow not found");
  EXPECT_EQ(WrongOverride({"name=a: b"}), "--set name=a: b: name: found a section, expected a text");
}

TEST(JobOverride, NeedsAKeyAndAValue) {
  const std::string expected = ": expected KEY=VALUE, such as train.steps=10";
  EXPECT_EQ(WrongOverride({"train.steps", "=1", ""}),
            "--set train.steps" + expected + "\n--set =1" + expected + "\n--set ''" + expected);
}

TEST(JobOverride, DoesNotHideAKeyGivenTwice) {
  EXPECT_EQ(WrongOverride({"model.layers=5"}, JobWith("ffn: 96", "ffn: 96\n  layers: 3")),
            "job.yaml:8: model.layers: given twice, expected once");
}

TEST(JobOverride, IsReportedAfterTheFile) {
  EXPECT_EQ(
      WrongOverride({"model.layers=0", "name=''"}, JobWith("steps: 10", "steps: 0")),
      "job.yaml:12: train.steps: found 0, expected an integer of at least 1\n"
      "--set model.layers=0: model.layers: found 0, expected an integer of at least 1 and at most 10000");
}

TEST(LoadJobFile, MakesSourcesRelativeToTheFileAbsolute) {
  const test::FileFolder folder;
  const std::string path =
      folder.Write("jobs/job.yaml", JobWith("source: corpus.txt", "source: [corpus.txt, ../up, /etc/hosts]"));
  const absl::StatusOr<v1::JobSpec> job = LoadJobFile(path);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_THAT(job->data().source(),
              ElementsAre(folder.path() / "jobs/corpus.txt", folder.path() / "up", "/etc/hosts"));
}

TEST(LoadJobFile, NamesTheFileInErrors) {
  const test::FileFolder folder;
  const std::string path = folder.Write("job.yaml", JobWith("steps: 10", "steps: -1"));
  EXPECT_EQ(
      LoadJobFile(path).status(),
      absl::InvalidArgumentError(path + ":12: train.steps: found -1, expected an integer of at least 1"));
}

TEST(LoadJobFile, AnswersNotFoundForWhatCannotBeRead) {
  const test::FileFolder folder;
  const std::string missing = folder.path() / "none.yaml";
  EXPECT_EQ(
      LoadJobFile(missing).status(),
      absl::NotFoundError(missing + ": cannot be read: No such file or directory, expected a job file"));
  EXPECT_EQ(LoadJobFile(folder.path()).status().code(), absl::StatusCode::kNotFound);
}

TEST(LoadJobFile, RefusesAFileWithoutEnd) {
  EXPECT_EQ(
      LoadJobFile("/dev/zero").status(),
      absl::InvalidArgumentError("/dev/zero: found a file of more than 1048576 bytes, expected a job file"));
}

TEST(LoadJobFile, ReadsTheExamples) {
  const std::string folder = METP_SOURCE_DIR "/deploy/examples/";
  const absl::StatusOr<v1::JobSpec> licenses = LoadJobFile(folder + "licenses-4k.yaml");
  ASSERT_TRUE(licenses.ok()) << licenses.status();
  EXPECT_EQ(licenses->parallel().degree(), 4);
  EXPECT_EQ(licenses->model().kv_heads(), 4);
  const absl::StatusOr<v1::JobSpec> packed = LoadJobFile(folder + "packed-gpt2.yaml");
  ASSERT_TRUE(packed.ok()) << packed.status();
  EXPECT_TRUE(packed->data().document_mask());
  EXPECT_FALSE(packed->model().causal());
}

TEST(JobToJson, KeepsTheKeysOfTheJobFileAndCanBeReadBack) {
  const v1::JobSpec job = Right(std::string(kJob));
  const std::string json = JobToJson(job);
  EXPECT_THAT(json, HasSubstr("\"sequence_length\": 128"));
  EXPECT_THAT(json, HasSubstr("\"family\": \"FAMILY_LLAMA\""));
  v1::JobSpec back;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(json, &back).ok());
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(job, back));
}

}  // namespace
}  // namespace metp
