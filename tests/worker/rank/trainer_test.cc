// Whole training runs on small jobs: what must not depend on how the work is cut, and what must end a run.

#include "worker/rank/trainer.h"

#include <gtest/gtest.h>

#include <fstream>

#include "proto/support/job_file.h"
#include "tests/support/local_ranks.h"
#include "tests/support/temp_folder.h"
#include "worker/model/plan.h"

namespace metp::testing {
namespace {

class TrainerTest : public ::testing::Test {
 protected:
  TrainerTest() {
    std::ofstream file(folder_.path() + "/text.txt");
    for (int i = 0; i < 400; ++i)
      file << "line " << i * i % 97 << " of a text that repeats itself, nearly.\n";
  }

  v1::JobSpec Job(const std::vector<std::string>& overrides) {
    const std::string text =
        "name: small\n"
        "model: {family: llama, layers: 2, hidden: 24, heads: 6, kv_heads: 3, ffn: 40}\n"
        "data: {source: " +
        folder_.path() +
        "/text.txt, sequence_length: 101}\n"
        "train: {steps: 6, sequences_per_step: 4, micro_batch: 2, learning_rate: 1e-2, warmup_steps: 2}\n"
        "parallel: {degree: 1}\n";
    const auto job = ParseJob(text, "small.yaml", overrides);
    EXPECT_TRUE(job.ok()) << job.status();
    return *job;
  }

  /// Losses of all steps as rank 0 reports them, and the status that ended the run.
  std::pair<std::vector<double>, absl::Status> Train(const v1::JobSpec& job) {
    const v1::Plan plan = ResolvePlan(job);
    const auto dataset = Dataset::Open(job);
    EXPECT_TRUE(dataset.ok()) << dataset.status();
    std::vector<double> losses;
    absl::Status end;
    RunLocalRings(plan.degree(), RingsOf(plan),
                  [&](int rank, Communicator& communicator, Communicator* across) {
                    MemoryLedger ledger;
                    const auto backend = MakeCpuBackend(1, ledger);
                    auto trainer = Trainer::Create(job, plan, *backend, communicator, across, dataset->get());
                    if (!trainer.ok()) {
                      ADD_FAILURE() << trainer.status();
                      communicator.Abort(trainer.status());
                      return;
                    }
                    while (!(*trainer)->done()) {
                      const auto report = (*trainer)->Step();
                      if (rank == 0 && report.ok()) losses.push_back(report->loss());
                      if (rank == 0) end = report.status();
                      if (!report.ok()) {
                        communicator.Abort(report.status());
                        return;
                      }
                    }
                  });
    return {losses, end};
  }

  static void ExpectNear(const std::vector<double>& a, const std::vector<double>& b, double tolerance) {
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], tolerance) << "step " << i + 1;
  }

  TempFolder folder_;
};

TEST_F(TrainerTest, LossesDoNotDependOnTheDegree) {
  const auto one = Train(Job({})).first;
  ASSERT_EQ(one.size(), 6u);
  EXPECT_LT(one.back(), one.front() - 0.5);
  for (const char* degree : {"2", "3", "5"}) {
    ExpectNear(Train(Job({std::string("parallel.degree=") + degree})).first, one, 1e-4);
  }
}

TEST_F(TrainerTest, LossesDoNotDependOnTheRingsNorOnWhereTheOptimizerIs) {
  const auto one = Train(Job({})).first;
  EXPECT_EQ(Train(Job({"parallel.offload=optimizer"})).first, one);
  for (const char* rings : {"2", "4"}) {
    for (const char* offload : {"none", "[activations, optimizer]"}) {
      const v1::JobSpec job =
          Job({"train.micro_batch=1", "parallel.degree=2", std::string("parallel.rings=") + rings,
               std::string("parallel.offload=") + offload});
      ExpectNear(Train(job).first, one, 1e-4);
      EXPECT_EQ(Train(job).first, Train(job).first);
    }
  }
}

TEST_F(TrainerTest, LossesDoNotDependOnTheMicroBatch) {
  const auto whole = Train(Job({"train.micro_batch=4", "parallel.degree=2"})).first;
  ExpectNear(Train(Job({"train.micro_batch=1", "parallel.degree=2"})).first, whole, 1e-4);
}

TEST_F(TrainerTest, TheSamePlanGivesTheSameLossesBitForBit) {
  const v1::JobSpec job = Job({"parallel.degree=3"});
  EXPECT_EQ(Train(job).first, Train(job).first);
}

TEST_F(TrainerTest, ASequenceShorterThanTheRingStillTrains) {
  const auto one = Train(Job({"data.sequence_length=3"})).first;
  ExpectNear(Train(Job({"data.sequence_length=3", "parallel.degree=4"})).first, one, 1e-4);
}

TEST_F(TrainerTest, DocumentMaskChangesTheLoss) {
  for (char name = 'a'; name < 'z'; ++name) {  // documents shorter than a sequence
    std::ofstream(folder_.path() + "/" + name) << std::string(60, name) << " ends";
  }
  std::filesystem::remove(folder_.path() + "/text.txt");
  const std::string source = "data.source=" + folder_.path();
  const auto masked = Train(Job({source, "data.document_mask=true"})).first;
  const auto open = Train(Job({source})).first;
  EXPECT_NE(masked, open);
  ExpectNear(Train(Job({source, "data.document_mask=true", "parallel.degree=3"})).first, masked, 1e-4);
}

TEST_F(TrainerTest, ALossThatIsNotFiniteEndsTheRunNamingTheStep) {
  const auto [losses, end] =
      Train(Job({"train.learning_rate=1e30", "train.clip_norm=0", "train.warmup_steps=0"}));
  EXPECT_EQ(end.code(), absl::StatusCode::kDataLoss);
  EXPECT_NE(std::string(end.message()).find("step " + std::to_string(losses.size() + 1)), std::string::npos)
      << end;
  EXPECT_LT(losses.size(), 6u);
}

TEST_F(TrainerTest, AShareThatDoesNotFitIsRefusedWithTheCategories) {
  const v1::JobSpec job = Job({});
  const v1::Plan plan = ResolvePlan(job);
  const auto dataset = Dataset::Open(job);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  const auto communicators = MakeLocalCommunicators(1);
  MemoryLedger unbounded;
  {
    const auto backend = MakeCpuBackend(1, unbounded);
    auto trainer = Trainer::Create(job, plan, *backend, *communicators[0], nullptr, dataset->get());
    ASSERT_TRUE(trainer.ok() && (*trainer)->Step().ok());
  }
  // One byte less than a step needs.
  MemoryLedger ledger(unbounded.peak_total() - 1);
  const auto backend = MakeCpuBackend(1, ledger);
  auto trainer = Trainer::Create(job, plan, *backend, *communicators[0], nullptr, dataset->get());
  ASSERT_TRUE(trainer.ok()) << trainer.status();
  const absl::Status status = (*trainer)->Step().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(
      std::string(status.message()).find("of " + std::to_string(unbounded.peak_total() - 1) + " are held"),
      std::string::npos)
      << status;
}

TEST_F(TrainerTest, ADeviceThatIsFullEndsTheStepWhateverIsOnItsWayToTheHost) {
  const v1::JobSpec job = Job({"model.layers=5", "parallel.offload=activations", "data.sequence_length=257"});
  const v1::Plan plan = ResolvePlan(job);
  const auto dataset = Dataset::Open(job);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  const auto communicators = MakeLocalCommunicators(1);
  int64_t share = 0, peak = 0;
  for (int64_t capacity : {int64_t{1} << 40, int64_t{0}}) {
    // From the share alone to one byte less than a step needs: the step ends in a different place each time.
    for (int part = 0; part < (capacity == 0 ? 20 : 1); ++part) {
      const int64_t bytes = capacity != 0 ? capacity : share + (peak - 1 - share) * part / 19;
      MemoryLedger ledger(bytes);
      const auto backend = MakeCpuBackend(1, ledger);
      auto trainer = Trainer::Create(job, plan, *backend, *communicators[0], nullptr, dataset->get());
      ASSERT_TRUE(trainer.ok()) << trainer.status();
      share = ledger.current_total();
      const absl::Status status = (*trainer)->Step().status();
      if (capacity != 0) {
        EXPECT_TRUE(status.ok()) << status;
        peak = ledger.peak_total();
      } else {
        EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
      }
    }
  }
}

TEST_F(TrainerTest, MoreRanksThanRowsOfAnythingStillTrain) {
  const std::vector<std::string> tiny = {"model.hidden=6", "model.heads=3", "model.kv_heads=3",
                                         "model.ffn=2"};
  auto with_degree = [&](const std::string& degree) {
    std::vector<std::string> overrides = tiny;
    overrides.push_back("parallel.degree=" + degree);
    return Train(Job(overrides)).first;
  };
  ExpectNear(with_degree("8"), with_degree("1"), 1e-4);
}

}  // namespace
}  // namespace metp::testing
