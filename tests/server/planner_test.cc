// Plans: that they cover everything once, that closed form and simulation agree, that memory and speed follow from
// the device, and what is said of a job that does not fit.

#include "server/planner/planner.h"

#include <gtest/gtest.h>

#include <map>

#include "server/planner/candidates.h"
#include "server/planner/overlap.h"
#include "tests/support/planned_jobs.h"
#include "worker/model/layout.h"
#include "worker/model/plan.h"

namespace metp {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Plan, EveryCandidateCoversTokensWeightsAndHeadsOnce) {
  const std::vector<v1::JobSpec> jobs = {
      PlannedJob("family: llama, layers: 2, hidden: 36, heads: 6, kv_heads: 3, ffn: 41, vocab: 259", 101,
                 {"parallel.degree=auto", "parallel.recompute=auto"}),
      PlannedJob("family: gpt2, layers: 1, hidden: 35, heads: 5, ffn: 50", 64, {"parallel.degree=auto"})};
  for (const v1::JobSpec& job : jobs) {
    const ModelConfig config = MakeModelConfig(job.model());
    for (const v1::Plan& plan : Candidates(job, Profile("h200"), 5)) {
      SCOPED_TRACE(::testing::Message() << plan.degree() << " ranks, " << plan.head_groups() << " groups");
      std::vector<int> tokens(job.data().sequence_length()), heads(config.a), kv(config.g);
      for (const HeadGroup& group : HeadGroups(config.a, config.g, plan.head_groups())) {
        for (int64_t x = group.q.begin; x < group.q.end; ++x) ++heads[x];
        for (int64_t x = group.kv.begin; x < group.kv.end; ++x) ++kv[x];
      }
      std::map<std::string, std::vector<int>> elements;
      for (int rank = 0; rank < plan.degree(); ++rank) {
        for (const Range& chunk : Zigzag{job.data().sequence_length(), plan.degree()}.Chunks(rank)) {
          for (int64_t x = chunk.begin; x < chunk.end; ++x) ++tokens[x];
        }
        const ParameterLayout layout(config, plan.degree(), rank, plan.head_groups());
        for (const Piece& piece : layout.pieces()) {
          if (!piece.matrix) continue;  // whole on every rank
          std::vector<int>& whole = elements[piece.name];
          whole.resize(piece.rows * piece.cols);
          for (int64_t i = piece.row.begin; i < piece.row.end; ++i) {
            for (int64_t j = piece.col.begin; j < piece.col.end; ++j) ++whole[i * piece.cols + j];
          }
        }
      }
      EXPECT_EQ(tokens, std::vector<int>(tokens.size(), 1));
      EXPECT_EQ(heads, std::vector<int>(heads.size(), 1));
      EXPECT_EQ(kv, std::vector<int>(kv.size(), 1));
      for (const auto& [name, whole] : elements) EXPECT_EQ(whole, std::vector<int>(whole.size(), 1)) << name;
    }
  }
}

TEST(Plan, ChoosesWhatTheJobLeavesOpenAndKeepsWhatItFixes) {
  const v1::DeviceProfile profile = Profile("h100-80g");
  const v1::JobSpec open = Llama8B(65536, {"parallel.degree=auto", "parallel.recompute=auto"});
  const auto chosen = ChoosePlan(open, profile, 8);
  ASSERT_THAT(chosen, IsOk());
  EXPECT_EQ(chosen->plan.degree(), 8);  // the fastest is the one with most devices
  EXPECT_TRUE(chosen->prediction.fits());
  EXPECT_THAT(chosen->plan.notes(0), HasSubstr("the next fastest: degree "));
  for (const v1::Plan& plan : Candidates(open, profile, 8)) {
    const auto other = Predict(open, plan, profile);
    ASSERT_THAT(other, IsOk());
    if (other->fits()) {
      EXPECT_GE(other->step_seconds(), chosen->prediction.step_seconds());
    }
  }
  const auto fixed = ChoosePlan(Llama8B(65536, {"parallel.degree=4", "parallel.head_groups=2",
                                                "parallel.tile_rows=1000", "parallel.recompute=full"}),
                                profile, 8);
  ASSERT_THAT(fixed, IsOk());
  EXPECT_EQ(fixed->plan.degree(), 4);
  EXPECT_EQ(fixed->plan.head_groups(), 2);
  EXPECT_EQ(fixed->plan.tile_rows(), 1000);
  EXPECT_EQ(fixed->plan.recompute(), v1::ParallelSpec::RECOMPUTE_FULL);
}

TEST(Plan, ALargerDeviceNeverShortensTheLongestSequence) {
  const v1::JobSpec job = Llama8B(4096, {"parallel.degree=8", "parallel.recompute=auto"});
  v1::DeviceProfile profile = Profile("a100-80g");
  int64_t before = 0;
  for (int64_t gigabytes : {15, 25, 26, 40, 85, 200}) {
    profile.set_memory_bytes(gigabytes * 1'000'000'000);
    const auto longest = MaxSequence(job, profile, 8);
    ASSERT_THAT(longest, IsOk());
    EXPECT_GE(longest->tokens, before) << gigabytes << " GB";
    before = longest->tokens;
  }
  EXPECT_GT(before, 0);
}

TEST(Plan, TheLongestSequenceFitsAndOneTokenMorePerRankDoesNot) {
  const v1::DeviceProfile profile = Profile("a100-80g");
  v1::JobSpec job = Llama8B(4096, {"parallel.degree=8", "parallel.recompute=full"});
  const auto longest = MaxSequence(job, profile, 8);
  ASSERT_THAT(longest, IsOk());
  const auto fits = [&](int64_t s) {
    job.mutable_data()->set_sequence_length(static_cast<int32_t>(s));
    return Predict(job, longest->plan, profile)->fits();
  };
  EXPECT_TRUE(fits(longest->tokens));
  EXPECT_FALSE(fits(longest->tokens + 16));
}

TEST(Overlap, ClosedFormAndSimulationAgreeWhereAPassHasAMiddle) {
  int hides = 0, exposed = 0;
  for (const char* name : {"a100-80g", "h100-80g", "b200"}) {
    for (int p : {4, 8, 16}) {
      for (int groups : {1, 2, 4, 8}) {
        for (int64_t s : {8192, 32768, 131072, 1048576}) {
          for (const char* recompute : {"none", "selective", "full"}) {
            v1::JobSpec job =
                Llama8B(s, {"parallel.degree=" + std::to_string(p),
                            "parallel.head_groups=" + std::to_string(groups), "parallel.tile_rows=8192",
                            std::string("parallel.recompute=") + recompute, "model.layers=4"});
            const auto prediction = Predict(job, ResolvePlan(job, p), Profile(name));
            ASSERT_THAT(prediction, IsOk());
            for (const v1::PassPrediction& pass : prediction->passes()) {
              if (!pass.verdict()) continue;
              // With fewer than four groups a pass is all edges, and the closed form the stricter.
              EXPECT_TRUE(groups < 4 ? pass.simulation_hides() || !pass.hides()
                                     : pass.simulation_hides() == pass.hides())
                  << name << ", p " << p << ", c " << groups << ", s " << s << ", " << recompute << ": "
                  << pass.ShortDebugString();
              ++(pass.hides() ? hides : exposed);
            }
          }
        }
      }
    }
  }
  EXPECT_GT(hides, 300);  // both answers occur
  EXPECT_GT(exposed, 300);
}

TEST(Plan, OffloadsOnlyWhereThatFitsMore) {
  v1::DeviceProfile profile = Profile("h100-80g");
  const v1::JobSpec job =
      Llama8B(4096, {"parallel.degree=8", "parallel.recompute=full", "parallel.offload=auto"});
  const auto with = MaxSequence(job, profile, 8);
  profile.set_host_memory_bytes(1'000'000);
  const auto without = MaxSequence(job, profile, 8);
  ASSERT_THAT(with, IsOk());
  ASSERT_THAT(without, IsOk());
  EXPECT_TRUE(with->plan.offload_activations());
  EXPECT_FALSE(without->plan.offload_activations());
  EXPECT_GT(with->tokens, 2 * without->tokens);
  EXPECT_GT(without->tokens, 1'000'000);
  EXPECT_THAT(
      ChoosePlan(Llama8B(4096, {"parallel.degree=8", "parallel.offload=activations"}), profile, 8),
      StatusIs(absl::StatusCode::kResourceExhausted, AllOf(HasSubstr(" of host memory for each device ("),
                                                           HasSubstr("it fits with parallel.offload=none"))));
}

TEST(Plan, StepsOfManyMicroBatchesAreExtrapolatedExactly) {
  // Five micro-batches, the last three not simulated, against the sum of what one and the later ones take.
  const auto seconds = [](int sequences) {
    const v1::JobSpec job = Llama8B(16384, {"parallel.degree=4", "model.layers=2",
                                            "train.sequences_per_step=" + std::to_string(sequences)});
    const auto prediction = Predict(job, ResolvePlan(job, 4), Profile("h200"));
    EXPECT_THAT(prediction, IsOk());
    return prediction->step_seconds();
  };
  EXPECT_NEAR(seconds(5), seconds(2) + 3 * (seconds(2) - seconds(1)), 1e-9);
  const auto copying = [](int sequences) {
    const v1::JobSpec job =
        Llama8B(16384, {"parallel.degree=4", "model.layers=4", "parallel.offload=activations",
                        "train.sequences_per_step=" + std::to_string(sequences)});
    return Predict(job, ResolvePlan(job), Profile("h200"))->host().copy_seconds();
  };
  EXPECT_NEAR(copying(5), 5 * copying(1), 1e-9);
  EXPECT_GT(seconds(5), 4.5 * seconds(1) * 0.9);
}

TEST(Overlap, TheSmallestSequenceAndTheLargestRingAreWhereTheVerdictTurns) {
  const v1::DeviceProfile profile = Profile("h100-80g");
  v1::JobSpec job = Llama8B(65536, {"parallel.degree=8", "parallel.tile_rows=8192"});
  const v1::Plan plan = ResolvePlan(job, 8);
  const int64_t smallest = SmallestFullOverlapSequence(job, plan, profile);
  ASSERT_GT(smallest, 8);
  const auto holds = [&](int64_t s, int degree) {
    v1::JobSpec other = job;
    v1::Plan with = plan;
    other.mutable_data()->set_sequence_length(static_cast<int32_t>(s));
    with.set_degree(degree);
    return FullOverlap(OverlapOf(other, with, profile));
  };
  EXPECT_TRUE(holds(smallest, 8));
  EXPECT_FALSE(holds(smallest - 1, 8));
  const int largest = LargestFullOverlapDegree(job, plan, profile);
  EXPECT_TRUE(holds(65536, largest));
  EXPECT_FALSE(holds(65536, largest + 1));
  EXPECT_TRUE(OverlapOf(
                  job,
                  [&] {
                    v1::Plan one = plan;
                    one.set_degree(1);
                    return one;
                  }(),
                  profile)
                  .empty());
}

TEST(Refusal, ComesOfOverlapThatIsRequiredAndNotThere) {
  const v1::DeviceProfile profile = Profile("h100-80g");
  const std::vector<std::string> required = {"parallel.degree=8", "parallel.require_full_overlap=true"};
  EXPECT_THAT(ChoosePlan(Llama8B(65536, required), profile, 8), IsOk());
  EXPECT_THAT(
      ChoosePlan(Llama8B(2048, required), profile, 8),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               AllOf(HasSubstr("parallel.require_full_overlap: found true, but communication does not hide"),
                     HasSubstr("expected at least "),
                     HasSubstr(" tokens in data.sequence_length, or parallel.degree at most "))));
}

TEST(Refusal, LeavesRoomForWhatAGpusLibrariesHold) {
  const v1::JobSpec job =
      PlannedJob("family: llama, layers: 2, hidden: 1024, heads: 8, ffn: 4096, vocab: 1000", 4096);
  v1::Plan plan = ResolvePlan(job, 1);
  plan.set_device(v1::JobSpec::DEVICE_GPU);
  const auto least = [&] {  // bytes of a device that fits
    int64_t no = 0, yes = int64_t{1} << 40;
    while (yes - no > 1) {
      const int64_t middle = (no + yes) / 2;
      (CheckMemory(job, plan, middle).ok() ? yes : no) = middle;
    }
    return yes;
  };
  const int64_t on_gpu = least();
  plan.set_device(v1::JobSpec::DEVICE_CPU);
  const int64_t on_cpu = least();
  EXPECT_GE(on_gpu - on_cpu, ReservedBytesOf(on_gpu));
}

TEST(Refusal, SaysWhatIsNeededWhatWouldFitAndWhatToChange) {
  const auto refused = ChoosePlan(Llama8B(1 << 20, {"parallel.degree=8"}), Profile("a100-80g"), 8);
  EXPECT_THAT(refused,
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("data.sequence_length: found 1048576, with which the job needs "),
                             HasSubstr("a100-80g has 82.5 GB to give"),
                             HasSubstr("the longest data.sequence_length that fits is "),
                             HasSubstr("it fits with parallel.recompute=full ("))));
  const auto hopeless =
      ChoosePlan(PlannedJob("family: llama, layers: 200, hidden: 32768, heads: 256, ffn: 131072", 8, {}),
                 Profile("a100-80g"), 8);
  EXPECT_THAT(hopeless,
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("no sequence fits, however short")));
}

}  // namespace
}  // namespace metp
