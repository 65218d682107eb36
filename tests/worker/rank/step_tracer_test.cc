// Timelines on order, of a small job whose ranks are threads.

#include "worker/rank/step_tracer.h"

#include <gtest/gtest.h>

#include <fstream>

#include "proto/support/common_steps.h"
#include "proto/support/job_file.h"
#include "tests/support/local_ranks.h"
#include "tests/support/temp_folder.h"
#include "worker/model/plan.h"

namespace metp::testing {
namespace {

double Now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

class StepTracerTest : public ::testing::Test {
 protected:
  StepTracerTest() {
    std::ofstream file(folder_.path() + "/text.txt");
    for (int i = 0; i < 400; ++i) file << "line " << i * i % 97 << " of a text\n";
  }

  /// What one rank has reported and sent.
  struct Sent {
    std::vector<v1::StepReport> reports;
    std::vector<v1::TracePart> parts;
  };
  /// Trains; `before(step, orders)` runs on rank 0 before each of its steps. Returns what rank 0 has sent.
  Sent Train(const std::vector<std::string>& overrides, const std::function<void(int, TraceOrders&)>& before,
             const StepTracer::UnixClock& clock = Now) {
    const auto job = ParseJob(
        "name: small\n"
        "model: {family: llama, layers: 2, hidden: 24, heads: 6, kv_heads: 3, ffn: 40}\n"
        "data: {source: " +
            folder_.path() +
            "/text.txt, sequence_length: 101}\n"
            "train: {steps: 12, learning_rate: 1e-2}\n",
        "small.yaml", overrides);
    EXPECT_TRUE(job.ok()) << job.status();
    const v1::Plan plan = ResolvePlan(*job);
    const auto dataset = Dataset::Open(*job);
    EXPECT_TRUE(dataset.ok()) << dataset.status();
    Sent sent;
    RunLocalRings(
        plan.degree(), RingsOf(plan), [&](int rank, Communicator& communicator, Communicator* across) {
          MemoryLedger ledger;
          const auto backend = MakeCpuBackend(1, ledger);
          auto trainer = Trainer::Create(*job, plan, *backend, communicator, across, dataset->get());
          ASSERT_TRUE(trainer.ok()) << trainer.status();
          TraceOrders orders = 0;
          StepTracer tracer(
              **trainer, *backend, &orders, [&](const v1::TracePart& part) { sent.parts.push_back(part); },
              clock);
          while (!(*trainer)->done()) {
            if (rank == 0) before((*trainer)->step() + 1, orders);
            tracer.BeforeStep();
            const auto report = (*trainer)->Step();
            ASSERT_TRUE(report.ok()) << report.status();
            tracer.AfterStep(*report);
            if (rank == 0) sent.reports.push_back(*report);
          }
        });
    return sent;
  }

  static std::vector<int> Steps(const std::vector<v1::TracePart>& parts) {
    std::vector<int> steps;
    for (const v1::TracePart& part : parts) {
      if (part.last()) steps.push_back(part.step());
    }
    return steps;
  }

  TempFolder folder_;
};

TEST_F(StepTracerTest, TracesWhatIsOrderedFromTheNextStepOnAndSomeMore) {
  static_assert(kMoreTracedSteps == 3);
  const Sent sent = Train({"parallel.degree=2"}, [](int step, TraceOrders& orders) {
    if (step == 3) orders = 1;
    if (step == 9) orders = 2;
    if (step == 10) orders = 1;  // anew
  });
  EXPECT_EQ(Steps(sent.parts), (std::vector<int>{3, 4, 5, 6, 9, 10, 11, 12}));
  EXPECT_TRUE(Train({"parallel.degree=2"}, [](int, TraceOrders&) {}).parts.empty());
}

TEST_F(StepTracerTest, StopsAtTheNextStep) {
  const Sent sent = Train({"parallel.degree=2"}, [](int step, TraceOrders& orders) {
    if (step == 2) orders = 5;
    if (step == 4) orders = kStopTracing;
    if (step == 6) orders = kStopTracing;  // of nothing
    if (step == 8) orders = 1;
  });
  EXPECT_EQ(Steps(sent.parts), (std::vector<int>{2, 3, 8, 9, 10, 11}));
}

TEST_F(StepTracerTest, StepsOfOneOrderKeepTheirPlacesWhateverTheClockDoes) {
  constexpr double kHour = 3600;
  double now = 1.8e9;
  const auto start = [](const v1::TracePart& part) { return part.spans(0).start(); };
  const Sent sent = Train(
      {"parallel.degree=2"},
      [](int step, TraceOrders& orders) {
        if (step == 2 || step == 8) orders = 1;
      },
      [&] { return now += kHour; });
  ASSERT_EQ(Steps(sent.parts), (std::vector<int>{2, 3, 4, 5, 8, 9, 10, 11}));
  for (size_t i = 1; i < sent.parts.size(); ++i) {
    const double apart = start(sent.parts[i]) - start(sent.parts[i - 1]);
    EXPECT_GT(apart, i == 4 ? kHour / 2 : 0) << i;  // the second order has a look of its own
    EXPECT_LT(apart, i == 4 ? 2 * kHour : kHour / 2) << i;
  }
}

TEST_F(StepTracerTest, SumsOfSpansAreTheTimesOfTheReportAndLieWithinTheStep) {
  constexpr double kRounding = 2e-6;  // of Unix times
  for (const std::vector<std::string>& overrides : std::vector<std::vector<std::string>>{
           {"parallel.degree=3"}, {"parallel.degree=2", "parallel.rings=2", "train.sequences_per_step=2"}}) {
    const double before = Now();
    const Sent sent = Train(overrides, [](int step, TraceOrders& orders) {
      if (step == 2) orders = 1;
    });
    const double after = Now();
    ASSERT_EQ(Steps(sent.parts), (std::vector<int>{2, 3, 4, 5}));
    for (const v1::TracePart& part : sent.parts) {
      const v1::StepReport& report = sent.reports.at(part.step() - 1);
      std::map<std::string, double> sums;  // by track and name
      ASSERT_GT(part.spans_size(), 1);
      const v1::TraceSpan& step = part.spans(0);
      EXPECT_EQ(step.track(), "step");
      EXPECT_EQ(step.name(), "step " + std::to_string(part.step()));
      EXPECT_GE(step.seconds() + kRounding, report.step_seconds() - report.checkpoint_seconds());
      EXPECT_GE(step.start(), before - kRounding);
      EXPECT_LE(step.start() + step.seconds(), after + kRounding);
      for (const v1::TraceSpan& span : part.spans()) {
        EXPECT_GE(span.start(), step.start() - kRounding) << span.DebugString();
        EXPECT_LE(span.start() + span.seconds(), step.start() + step.seconds() + kRounding)
            << span.DebugString();
        sums[span.track() + ": " + span.name()] += span.seconds();
      }
      for (const auto& [name, pass] : report.passes()) {
        EXPECT_NEAR(sums["compute: " + name], pass.compute_seconds(), 1e-9) << name;
        EXPECT_NEAR(sums["ring: " + name], pass.communication_seconds(), 1e-9) << name;
        EXPECT_NEAR(sums["wait: " + name + ", exposed"], pass.exposed_seconds(), 1e-9) << name;
        EXPECT_NEAR(sums["wait: " + name + ", skew"], pass.skew_seconds(), 1e-9) << name;
      }
      EXPECT_GT(sums["compute: mlp_backward"], 0);
      EXPECT_GT(sums["ring: mlp_backward"], 0);
    }
  }
}

TEST_F(StepTracerTest, ShowsTheHostsWorkAndTheWaitsForIt) {
  const Sent sent = Train({"parallel.degree=2", "parallel.offload=[activations, optimizer]"},
                          [](int step, TraceOrders& orders) {
                            if (step == 2) orders = 1;
                          });
  std::map<std::string, int> tracks;
  double waits = 0, exposed = 0;
  for (const v1::TracePart& part : sent.parts) {
    exposed += sent.reports.at(part.step() - 1).host().exposed_seconds();
    for (const v1::TraceSpan& span : part.spans()) {
      ++tracks[span.track()];
      const std::string& name = span.name();
      if (name == "copy out, exposed" || name == "copy in, exposed" || name == "AdamW, exposed") {
        EXPECT_EQ(span.track(), "wait");
        waits += span.seconds();
      }
    }
  }
  for (const char* track : {"step", "compute", "ring", "copy out", "copy in", "host"})
    EXPECT_GT(tracks[track], 0) << track;
  EXPECT_NEAR(waits, exposed, 1e-9);
}

TEST_F(StepTracerTest, CutsLongStepsIntoParts) {
  const Sent sent = Train({"parallel.degree=2", "train.sequences_per_step=120", "train.steps=2"},
                          [](int step, TraceOrders& orders) {
                            if (step == 2) orders = 1;
                          });
  ASSERT_GT(sent.parts.size(), 1u);
  CommonSteps whole(1, 1);
  for (size_t i = 0; i < sent.parts.size(); ++i) {
    const bool last = i + 1 == sent.parts.size();
    EXPECT_EQ(sent.parts[i].last(), last);
    EXPECT_EQ(sent.parts[i].step(), 2);
    EXPECT_TRUE(last || sent.parts[i].spans_size() == kSpansInPart);
    EXPECT_LT(sent.parts[i].ByteSizeLong(), size_t{1} << 20);
    EXPECT_EQ(whole.First(), 0);
    whole.Add(sent.parts[i]);
  }
  EXPECT_EQ(whole.First(), 2);
}

TEST(TraceParts, AreSmallHoweverLongTheirNames) {
  constexpr int kSpans = 3000;
  std::vector<v1::TracePart> sent;
  const TraceParts::Send send = [&](const v1::TracePart& part) { sent.push_back(part); };
  TraceParts parts(1, 7, send);
  for (int i = 0; i < kSpans; ++i) parts.Add("compute", std::string(1000, 'x'), i, 1);
  parts.Add("compute", std::string(kBytesInPart, 'y'), kSpans, 1);  // one that is too long goes alone
  parts.End();
  ASSERT_GE(sent.size(), 7u);
  int spans = 0;
  for (const v1::TracePart& part : sent) {
    EXPECT_LT(part.ByteSizeLong(), kBytesInPart + 2000);
    EXPECT_GT(part.spans_size(), 0);
    EXPECT_EQ(part.rank(), 1);
    EXPECT_EQ(part.step(), 7);
    EXPECT_EQ(part.last(), &part == &sent.back());
    for (const v1::TraceSpan& span : part.spans()) EXPECT_EQ(span.start(), spans++);
  }
  EXPECT_EQ(spans, kSpans + 1);
}

v1::TracePart Part(int rank, int step, bool first = true, bool last = true) {
  v1::TracePart part;
  part.set_rank(rank);
  part.set_step(step);
  part.set_last(last);
  if (first) part.add_spans()->set_track("step");
  return part;
}

TEST(CommonSteps, AreTheFirstRowThatEveryRankHas) {
  CommonSteps whole(2, 2);
  for (const int step : {4, 5, 6, 8}) whole.Add(Part(0, step));
  whole.Add(Part(1, 5));
  EXPECT_EQ(whole.First(), 0);
  whole.Add(Part(1, 8));
  EXPECT_EQ(whole.First(), 0);  // 5 and 8 are no row
  whole.Add(Part(1, 9));
  whole.Add(Part(0, 9));
  EXPECT_EQ(whole.First(), 8);
  EXPECT_EQ(whole.Count(0), 5);
  EXPECT_EQ(whole.Count(1), 3);
}

TEST(CommonSteps, ConsistOfAllTheirParts) {
  CommonSteps whole(1, 1);
  whole.Add(Part(0, 3, /*first=*/false));  // the rest of one that began before
  EXPECT_EQ(whole.First(), 0);
  whole.Add(Part(0, 4, true, /*last=*/false));
  whole.Add(Part(0, 4, false, false));
  EXPECT_EQ(whole.First(), 0);
  whole.Add(Part(0, 4, false, true));
  EXPECT_EQ(whole.First(), 4);
  whole.Add(Part(7, 1));  // no rank of this job
}

}  // namespace
}  // namespace metp::testing
