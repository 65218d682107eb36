// A simulated step takes exactly the memory that a real one takes, to the byte and by category, and sends the
// same bytes: it is the same code.

#include "worker/rank/simulate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/support/local_ranks.h"
#include "tests/support/planned_jobs.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/model/plan.h"
#include "worker/rank/trainer.h"

namespace metp::testing {
namespace {

/// Tokens without a file.
class Zeros final : public Dataset {
 public:
  int64_t tokens() const override { return 1 << 20; }
  int64_t sequences() const override { return 1 << 10; }
  void Read(int64_t, int64_t begin, int64_t end, int32_t* tokens, int32_t* targets) const override {
    std::fill(tokens, tokens + (end - begin), 0);
    std::fill(targets, targets + (end - begin), 0);
  }
  std::vector<int64_t> DocumentStarts(int64_t) const override { return {0}; }
};

/// Computes in fp32 and takes the workspace that one thread of the CPU backend takes.
v1::DeviceProfile LikeTheCpu() {
  auto profile = ParseProfile(
      "name: like-the-cpu\nprecision: fp32\nmemory_bytes: 4000000000\nbytes_per_second: 1e10\n"
      "gemm: {flops_per_second: 1e11}\nattention_forward: {flops_per_second: 1e11}\n"
      "attention_backward: {flops_per_second: 1e11}\nlink: {bytes_per_second: 1e9, latency_seconds: 1e-5}\n"
      "devices_per_node: 8\nworkspace_bytes: " +
          std::to_string(cpu::kScratchFloats * 4) + "\n",
      "profile");
  EXPECT_TRUE(profile.ok()) << profile.status();
  return *profile;
}

struct Shape {
  const char* name;
  const char* model;
  int64_t s;
  std::vector<std::string> overrides;
};

std::vector<Shape> Shapes() {
  const char* llama = "family: llama, layers: 2, hidden: 24, heads: 6, kv_heads: 3, ffn: 40";
  const char* gpt2 = "family: gpt2, layers: 2, hidden: 20, heads: 5, ffn: 30";
  return {
      {"Llama", llama, 64, {}},
      {"Uneven", llama, 101, {"model.ffn=37", "model.vocab=259"}},
      {"OneGroup", llama, 64, {"parallel.head_groups=1"}},
      {"ManyGroups", llama, 64, {"parallel.head_groups=3"}},
      {"Tied", llama, 48, {"model.tie_embeddings=true"}},
      {"BothDirections", llama, 48, {"model.causal=false"}},
      {"Gpt2", gpt2, 64, {}},
      {"Gpt2Uneven", gpt2, 77, {"model.hidden=25", "model.max_positions=80"}},
      {"Tiles", llama, 128, {"parallel.tile_rows=4"}},
      {"Tiled", llama, 96, {"parallel.attention=tiled", "parallel.tile_rows=none"}},
      {"TiledTiles", gpt2, 96, {"parallel.attention=tiled", "parallel.tile_rows=3"}},
      {"Offload",
       "family: llama, layers: 5, hidden: 24, heads: 6, kv_heads: 3, ffn: 40",
       64,
       {"parallel.offload=activations"}},
      {"Gpt2Offload", gpt2, 77, {"parallel.offload=activations"}},
      {"Optimizer", llama, 64, {"parallel.offload=optimizer"}},
      {"OffloadEverything", gpt2, 77, {"parallel.offload=[activations, optimizer]"}},
      {"Rings", llama, 64, {"parallel.rings=2"}},
      {"RingsOffload", gpt2, 77, {"parallel.rings=2", "parallel.offload=[activations, optimizer]"}},
      {"MicroBatch", llama, 33, {"train.micro_batch=2"}},
      {"FewerTokensThanChunks", llama, 5, {}},
  };
}

class Simulated : public ::testing::TestWithParam<Shape> {};

TEST_P(Simulated, MemoryAndTrafficEqualTheRealStepsToTheByte) {
  const v1::DeviceProfile profile = LikeTheCpu();
  const Zeros zeros;
  for (const char* recompute : {"none", "selective", "full"}) {
    // Sanitizers look at the code, and every ring of three or more runs the same.
    for (int p : METP_SANITIZED ? std::vector{1, 3} : std::vector{1, 2, 3, 4, 8}) {
      SCOPED_TRACE(::testing::Message() << "recompute " << recompute << ", p " << p);
      std::vector<std::string> overrides = GetParam().overrides;
      overrides.push_back(std::string("parallel.recompute=") + recompute);
      overrides.push_back("parallel.degree=" + std::to_string(p));
      overrides.push_back("train.sequences_per_step=2");
      const v1::JobSpec job = PlannedJob(GetParam().model, GetParam().s, overrides);
      const v1::Plan plan = ResolvePlan(job);
      std::vector<v1::StepReport> real(RanksOf(plan));
      RunLocalRings(p, RingsOf(plan), [&](int rank, Communicator& communicator, Communicator* across) {
        MemoryLedger ledger;
        const auto backend = MakeCpuBackend(1, ledger);
        const auto trainer = Trainer::Create(job, plan, *backend, communicator, across, &zeros);
        ASSERT_TRUE(trainer.ok()) << trainer.status();
        const auto report = (*trainer)->Step();
        ASSERT_TRUE(report.ok()) << report.status();
        real[rank] = *report;
      });
      const auto simulated = SimulateStep(job, plan, profile);
      ASSERT_TRUE(simulated.ok()) << simulated.status();
      for (int rank = 0; rank < p; ++rank) {
        SCOPED_TRACE(::testing::Message() << "rank " << rank);
        const v1::StepReport& sim = (*simulated)[rank];
        EXPECT_EQ(sim.peak_bytes(), real[rank].peak_bytes());
        EXPECT_EQ(sim.host_peak_bytes(), real[rank].host_peak_bytes());
        // What a rank sends depends on its neighbours' parts too: no rank of its own shape stands for it.
        const auto itself = SimulateRank(job, plan, profile, rank);
        ASSERT_TRUE(itself.ok()) << itself.status();
        EXPECT_EQ(itself->sent_bytes(), real[rank].sent_bytes());
        for (const auto& [category, bytes] : real[rank].peak_bytes_by_category())
          EXPECT_EQ(sim.peak_bytes_by_category().at(category), bytes) << category;
        for (const auto& [category, bytes] : real[rank].current_bytes())
          EXPECT_EQ(sim.current_bytes().at(category), bytes) << category;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, Simulated, ::testing::ValuesIn(Shapes()),
                         [](const auto& info) { return info.param.name; });

v1::JobSpec Ring8B(int64_t s, int p) {
  return Llama8B(s, {"parallel.degree=" + std::to_string(p), "parallel.tile_rows=8192"});
}

TEST(SimulatedStep, TellsWhatAnIdealMachineWouldTake) {
  // No latency and no memory traffic: a step on one device takes its FLOPs, recomputation included.
  v1::DeviceProfile profile = LikeTheCpu();
  profile.set_kernel_seconds(0);
  profile.set_bytes_per_second(1e30);
  for (v1::KernelRate* rate :
       {profile.mutable_gemm(), profile.mutable_attention_forward(), profile.mutable_attention_backward()})
    *rate = [] {
      v1::KernelRate ideal;
      ideal.set_flops_per_second(1e12);
      ideal.set_bytes_per_second(1e30);
      return ideal;
    }();
  const int64_t s = 16384;
  const v1::JobSpec job = Ring8B(s, 1);
  const auto reports = SimulateStep(job, ResolvePlan(job), profile);
  ASSERT_TRUE(reports.ok()) << reports.status();
  const double h = 4096, f = 14336, a = 32, g = 8, d = 128, V = 128256, L = 32, n = s;
  const double projections = 2 * n * h * (2 * a + 2 * g) * d, mlp = 6 * n * h * f;
  const double scores = 4 * n * (n + 1) / 2 * a * d, head = 2 * n * h * V;
  // Forward; backward twice that (attention's two and a half times); made again: the logits, the MLP's inside,
  // Wo, and Q, K, V.
  const double again = 2 * n * h * f * 2 + 2 * n * h * a * d + 2 * n * h * (a + 2 * g) * d;
  const double flops = L * (3 * projections + 3 * mlp + 3.5 * scores + again) + 3 * head + head;
  EXPECT_NEAR((*reports)[0].step_seconds() * 1e12 / flops, 1, 1e-9);
}

TEST(SimulatedStep, HidesCommunicationOnlyWhereComputingTakesLonger) {
  auto profile = LoadProfile("h100-80g");
  ASSERT_TRUE(profile.ok()) << profile.status();
  const auto exposed = [&](int64_t s) {
    const v1::JobSpec job = Ring8B(s, 8);
    const auto reports = SimulateStep(job, ResolvePlan(job), *profile);
    EXPECT_TRUE(reports.ok()) << reports.status();
    double communication = 0, exposed = 0;
    for (const auto& [name, pass] : (*reports)[0].passes()) {
      communication += pass.communication_seconds();
      exposed += pass.exposed_seconds();
    }
    return exposed / communication;
  };
  EXPECT_GT(exposed(1024), 0.5);
  EXPECT_LT(exposed(262144), 0.05);
}

TEST(SimulatedStep, StandsForRanksOfEqualShapeByOne) {
  const auto distinct = [](int64_t s, int p) {
    const std::vector<int> ranks = RepresentativeRanks(Ring8B(s, p), p);
    return std::set<int>(ranks.begin(), ranks.end()).size();
  };
  EXPECT_EQ(distinct(1 << 20, 8), 1u);
  EXPECT_EQ(distinct(1 << 20, 1024), 2u);  // 14336 and 128256 rows over 1024 ranks: 125 or 126 of the latter
  EXPECT_GT(distinct(1000003, 8), 1u);
}

}  // namespace
}  // namespace metp::testing
