// A run that is interrupted and goes on from its checkpoint has the losses that it would have had anyway.

#include "worker/rank/checkpoints.h"

#include <gmock/gmock.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>

#include "proto/support/job_file.h"
#include "tests/support/local_ranks.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"
#include "worker/model/plan.h"

namespace metp::testing {
namespace {

using ::testing::HasSubstr;

class CheckpointsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::ofstream text(folder_.path() + "/text.txt");
    for (int i = 0; i < 300; ++i) text << "line " << i << " of a text to be learnt by heart\n";
  }
  v1::JobSpec Job(const std::vector<std::string>& overrides) {
    const std::string yaml =
        "name: small\n"
        "model: {family: gpt2, layers: 2, hidden: 24, heads: 6, ffn: 40}\n"
        "data: {source: " +
        folder_.path() +
        "/text.txt, sequence_length: 64}\n"
        "train: {steps: 8, sequences_per_step: 6, learning_rate: 1e-2, warmup_steps: 2}\n"
        "checkpoint: {directory: " +
        folder_.path() + "/checkpoints, every_steps: 2, keep: 2}\n";
    const auto job = ParseJob(yaml, "small.yaml", overrides);
    EXPECT_THAT(job, IsOk());
    return *job;
  }

  struct Result {
    std::map<int, double> losses;  // by step, as rank 0 reports them
    std::vector<absl::Status> ends;
  };
  Result Run(const std::vector<std::string>& overrides) {
    const v1::JobSpec job = Job(overrides);
    const v1::Plan plan = ResolvePlan(job);
    const auto dataset = Dataset::Open(job);
    EXPECT_THAT(dataset, IsOk());
    Result result;
    result.ends.resize(RanksOf(plan));
    RunLocalRings(plan.degree(), RingsOf(plan), [&](int rank, Communicator& ring, Communicator* across) {
      v1::RankStart start;
      *start.mutable_job() = job;
      *start.mutable_plan() = plan;
      start.set_rank(rank);
      start.set_threads(1);
      if (rank == 1 && !elsewhere_.empty())
        start.mutable_job()->mutable_checkpoint()->set_directory(elsewhere_);
      start.set_attempt("small/1");
      start.set_saved_step(saved_step_);
      RankHooks hooks;
      hooks.on_checkpoint = [&](const v1::CheckpointNote& note) {
        const std::lock_guard lock(mutex_);
        if (note.kind() == v1::CheckpointNote::HISTORY) {
          for (const v1::StepPoint& point : note.history()) history_[point.step()] = point.loss();
        } else if (note.kind() != v1::CheckpointNote::WAITING) {
          notes_.push_back(note);
        }
      };
      hooks.asked_to_leave = [&, steps = 0]() mutable {
        return rank == leaver_ && ++steps >= leave_in_step_;
      };
      hooks.on_step = [&](const v1::StepReport& report) {
        if (on_step_) on_step_(report);
        if (rank != 0) return;
        EXPECT_TRUE(result.losses.emplace(report.step(), report.loss()).second);
      };
      const auto device = OpenRankDevice(start);
      ASSERT_TRUE(device.ok()) << device.status();
      const absl::StatusOr<v1::RankResult> end = RunRank(start, **device, {ring, across}, **dataset, hooks);
      result.ends[rank] = end.status();
      if (end.ok() && end->interrupted()) ++interrupted_;
    });
    return result;
  }
  Result Good(const std::vector<std::string>& overrides) {
    Result result = Run(overrides);
    for (const absl::Status& end : result.ends) EXPECT_THAT(end, IsOk());
    return result;
  }
  /// The first three steps, and what follows in a run of its own.
  std::map<int, double> InTwo(std::vector<std::string> first, const std::vector<std::string>& second) {
    std::filesystem::remove_all(folder_.path() + "/checkpoints");
    first.push_back("train.stop_after=3");
    std::map<int, double> losses = Good(first).losses;
    EXPECT_EQ(losses.size(), 3u);
    const std::map<int, double> more = Good(second).losses;
    EXPECT_EQ(more.begin()->first, 4);
    losses.insert(more.begin(), more.end());
    return losses;
  }
  std::vector<std::string> Folders() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path() + "/checkpoints"))
      names.push_back(entry.path().filename());
    std::erase(names, "owner");
    std::sort(names.begin(), names.end());
    return names;
  }
  TempFolder folder_;
  std::string elsewhere_;  // rank 1's folder, where it is not everybody's
  int saved_step_ = 0;     // what ranks are told that there is
  int leaver_ = -1, leave_in_step_ = 0;
  std::atomic<int> interrupted_ = 0;
  std::function<void(const v1::StepReport&)> on_step_;
  std::mutex mutex_;
  std::vector<v1::CheckpointNote> notes_;
  std::map<int, double> history_;
};

TEST_F(CheckpointsTest, AnInterruptedRunHasTheSameLossesBitForBit) {
  const std::map<int, double> whole = Good({"parallel.degree=2", "checkpoint.resume=none"}).losses;
  ASSERT_EQ(whole.size(), 8u);
  EXPECT_EQ(InTwo({"parallel.degree=2"}, {"parallel.degree=2"}), whole);
  EXPECT_EQ(Folders(), (std::vector<std::string>{"step-00000006", "step-00000008"}));
}

TEST_F(CheckpointsTest, WhenOneRankIsAskedToLeaveAllDoAfterThatStepWithACheckpoint) {
  const std::map<int, double> whole = Good({"parallel.degree=2", "checkpoint.resume=none"}).losses;
  std::filesystem::remove_all(folder_.path() + "/checkpoints");
  const std::vector<std::string> rings = {"parallel.degree=2", "parallel.rings=2",
                                          "train.sequences_per_step=6"};
  for (const int leaver : {0, 3}) {
    std::filesystem::remove_all(folder_.path() + "/checkpoints");
    leaver_ = leaver;
    leave_in_step_ = 3;
    interrupted_ = 0;
    std::map<int, double> losses = Good(rings).losses;
    EXPECT_EQ(losses.size(), 3u);
    EXPECT_EQ(interrupted_, 4);
    EXPECT_EQ(Folders(), (std::vector<std::string>{"step-00000002", "step-00000003"}));
    leaver_ = -1;
    const std::map<int, double> rest = Good(rings).losses;
    EXPECT_EQ(rest.begin()->first, 4);
    EXPECT_EQ(history_, losses);  // what the first part has done, for those who do not know
    losses.insert(rest.begin(), rest.end());
    for (const auto& [step, loss] : losses) EXPECT_NEAR(loss, whole.at(step), 2e-4);
  }
}

TEST_F(CheckpointsTest, TellsWhatBecomesOfCheckpoints) {
  Good({"parallel.degree=2", "train.stop_after=3"});
  const std::string folder = folder_.path() + "/checkpoints/step-0000000";
  ASSERT_EQ(notes_.size(), 2u);
  EXPECT_EQ(notes_[0].kind(), v1::CheckpointNote::SAVED);
  EXPECT_EQ(notes_[0].step(), 2);
  EXPECT_EQ(notes_[0].text(), folder + "2");
  EXPECT_EQ(notes_[1].step(), 3);
  std::filesystem::remove(folder + "3/manifest.json");
  notes_.clear();
  Good({"parallel.degree=2", "train.stop_after=3"});
  ASSERT_GE(notes_.size(), 3u);
  EXPECT_EQ(notes_[0].kind(), v1::CheckpointNote::PASSED_OVER);
  EXPECT_EQ(notes_[0].step(), 3);
  EXPECT_EQ(notes_.back().kind(), v1::CheckpointNote::SAVED);
}

TEST_F(CheckpointsTest, ARunWhoseFolderAnotherHasTakenStops) {
  on_step_ = [&](const v1::StepReport& report) {
    if (report.step() != 3 || report.rank() != 0) return;
    std::ofstream(folder_.path() + "/checkpoints/owner") << "other-7/1";
  };
  const Result result = Run({"parallel.degree=2"});
  EXPECT_LT(result.losses.size(), 8u);
  EXPECT_THAT(result.ends[0], StatusIs(absl::StatusCode::kFailedPrecondition,
                                       HasSubstr("other-7/1 writes here now, no longer small/1")));
  EXPECT_FALSE(result.ends[1].ok());
  // The one of step 2 may have been complete before.
  EXPECT_THAT(Folders(),
              ::testing::AnyOf(std::vector<std::string>{}, std::vector<std::string>{"step-00000002"}));
}

TEST_F(CheckpointsTest, ARunWhoseCheckpointsAreOutOfSightDoesNotBeginAnew) {
  saved_step_ = 4;
  const Result result = Run({"parallel.degree=2"});
  EXPECT_TRUE(result.losses.empty());
  for (const absl::Status& end : result.ends) EXPECT_THAT(end, StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(std::string(result.ends[0].message()),
              HasSubstr("found no checkpoint, expected the one of step 4"));
}

TEST_F(CheckpointsTest, WhatOthersLeftUnfinishedIsRemovedAtTheStart) {
  std::filesystem::create_directories(folder_.path() + "/checkpoints/step-00000006.small.0.partial");
  Good({"train.stop_after=1", "checkpoint.every_steps=5"});
  EXPECT_EQ(Folders(), (std::vector<std::string>{"step-00000001"}));
}

TEST_F(CheckpointsTest, AnyRanksGoOnFromAnyOthers) {
  const std::map<int, double> whole = Good({"parallel.degree=1", "checkpoint.resume=none"}).losses;
  const std::vector<std::vector<std::string>> cuts = {
      {"parallel.degree=3"},
      {"parallel.degree=2", "parallel.rings=3"},
      {"parallel.degree=4", "parallel.head_groups=1", "parallel.offload=optimizer"},
      {"parallel.degree=1", "parallel.rings=2", "parallel.offload=[activations, optimizer]"}};
  for (size_t i = 0; i < cuts.size(); ++i) {
    const std::map<int, double> losses = InTwo(cuts[i], cuts[(i + 1) % cuts.size()]);
    ASSERT_EQ(losses.size(), 8u) << i;
    for (const auto& [step, loss] : losses)
      EXPECT_NEAR(loss, whole.at(step), 2e-4) << "cut " << i << ", step " << step;
  }
}

TEST_F(CheckpointsTest, ARunThatWasDoneDoesNothingMore) {
  Good({"train.stop_after=3"});
  EXPECT_TRUE(Good({"train.stop_after=3"}).losses.empty());
}

TEST_F(CheckpointsTest, ABrokenOneIsPassedOverForTheOneBefore) {
  const std::map<int, double> whole = Good({"parallel.degree=2", "train.stop_after=4"}).losses;
  const std::string shard = folder_.path() + "/checkpoints/step-00000004/shard-00001-of-00002.safetensors";
  std::filesystem::resize_file(shard, std::filesystem::file_size(shard) - 1);
  const Result again = Good({"parallel.degree=2", "train.stop_after=4"});
  ASSERT_EQ(again.losses.size(), 2u);  // from step 2 on
  for (const auto& [step, loss] : again.losses) EXPECT_EQ(loss, whole.at(step));
}

TEST_F(CheckpointsTest, TheOneThatTheJobNamesMustBeGood) {
  Good({"parallel.degree=2", "train.stop_after=4"});
  const std::string folder = folder_.path() + "/checkpoints/step-00000002";
  EXPECT_EQ(Good({"checkpoint.resume=" + folder, "train.stop_after=4"}).losses.begin()->first, 3);
  for (const absl::Status& end : Run({"checkpoint.resume=" + folder + "0", "parallel.degree=2"}).ends)
    EXPECT_THAT(end, StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(CheckpointsTest, OfAnotherModelOrAnotherOrderOfTheDataIsRefused) {
  Good({"train.stop_after=2"});
  // A rank that has said so leaves, and its neighbours may hear it from it.
  int refused = 0;
  for (const absl::Status& end : Run({"model.ffn=48", "parallel.degree=3"}).ends) {
    EXPECT_THAT(std::string(end.message()),
                HasSubstr("tensor l0.w1 is [24, 40], and in the job's model [24, 48]"));
    refused += absl::IsFailedPrecondition(end) ? 1 : 0;
  }
  EXPECT_GT(refused, 0);
  for (const auto& [change, names] :
       {std::pair{"train.sequences_per_step=4",
                  "(train.sequences_per_step): found 12 there, and 8 in the job"},
        {"data.seed=2", "data.seed: found 1 there, and 2 in the job"},
        {"data.sequence_length=32", "data.sequence_length: found 64 there"}}) {
    for (const absl::Status& end : Run({change, "model.max_positions=64"}).ends)
      EXPECT_THAT(end, StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr(names)));
  }
  std::ofstream(folder_.path() + "/text.txt", std::ios::app) << "more";
  for (const absl::Status& end : Run({}).ends)
    EXPECT_THAT(end,
                StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("tokens in data.source: found ")));
}

TEST_F(CheckpointsTest, WhatIsOfALaterStepIsSetAside) {
  const std::map<int, double> whole = Good({"train.stop_after=6"}).losses;
  const std::string second = folder_.path() + "/checkpoints/step-00000004";
  const std::map<int, double> again = Good({"checkpoint.resume=" + second, "train.stop_after=6"}).losses;
  EXPECT_EQ(again, (std::map<int, double>{{5, whole.at(5)}, {6, whole.at(6)}}));
  EXPECT_EQ(Folders(),
            (std::vector<std::string>{"step-00000004", "step-00000006", "step-00000006.abandoned"}));
  EXPECT_EQ(Good({"checkpoint.resume=none", "train.stop_after=6"}).losses, whole);
  EXPECT_EQ(Folders(), (std::vector<std::string>{"step-00000004", "step-00000004.abandoned", "step-00000006",
                                                 "step-00000006.abandoned", "step-00000006.abandoned-2"}));
}

TEST_F(CheckpointsTest, AFolderThatCannotBeWrittenDoesNotStopTrainingButIsSaidAtItsEnd) {
  std::ofstream(folder_.path() + "/checkpoints") << "a file";
  const Result result = Run({"parallel.degree=2", "checkpoint.resume=" + folder_.path() + "/none"});
  for (const absl::Status& end : result.ends) EXPECT_THAT(end, StatusIs(absl::StatusCode::kNotFound));
  std::filesystem::remove(folder_.path() + "/checkpoints");
  const std::string blocked = "/proc/metp-checkpoints";  // nobody can make it
  const Result trained = Run({"checkpoint.directory=" + blocked});
  EXPECT_EQ(trained.losses.size(), 8u);
  EXPECT_THAT(std::string(trained.ends[0].message()), HasSubstr("the last checkpoint was not written: "));
}

TEST_F(CheckpointsTest, WhereNoneIsWholeOnlyTheUserMayBeginAnew) {
  Good({"train.stop_after=4"});
  for (const std::string& name : Folders())
    std::filesystem::remove(folder_.path() + "/checkpoints/" + name + "/manifest.json");
  for (const absl::Status& end : Run({"train.stop_after=4"}).ends)
    EXPECT_THAT(end, StatusIs(absl::StatusCode::kDataLoss, HasSubstr("checkpoint.resume=none begins again")));
  EXPECT_EQ(Folders(), (std::vector<std::string>{"step-00000002", "step-00000004"}));  // untouched
}

TEST_F(CheckpointsTest, RanksThatSeeDifferentFoldersAreToldSo) {
  Good({"parallel.degree=2", "train.stop_after=2"});
  elsewhere_ = folder_.path() + "/elsewhere";
  const Result result = Run({"parallel.degree=2", "train.stop_after=4"});
  EXPECT_TRUE(result.losses.empty());
  int told = 0;
  for (const absl::Status& end : result.ends) {
    EXPECT_FALSE(end.ok());
    told +=
        std::string(end.message()).find("ranks do not see the same checkpoints") != std::string::npos ? 1 : 0;
  }
  EXPECT_EQ(told, 2);
}

}  // namespace
}  // namespace metp::testing
