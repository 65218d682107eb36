#pragma once

// A job table and a registry as the status page reads them, filled by hand.

#include <gmock/gmock.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/http/job_page.h"
#include "server/http/status_page.h"
#include "server/store/memory_store.h"
#include "tests/support/fake_clock.h"
#include "tests/support/jobs.h"
#include "tests/support/recording_link.h"
#include "tests/support/status_matchers.h"

namespace metp {

class StatusFixture : public ::testing::Test {
 protected:
  void AddWorker(const std::string& name, const std::string& device = "cpu",
                 const std::string& metrics_url = "http://127.0.0.1:9100/metrics") {
    v1::WorkerHello hello;
    hello.set_name(name);
    hello.set_incarnation("first");
    hello.set_device(device);
    hello.set_address("10.0.0.1");
    hello.set_metrics_url(metrics_url);
    hello.set_memory_bytes(int64_t{1} << 30);
    ASSERT_THAT(workers_.Connect(hello, std::make_shared<RecordingLink>()), IsOk());
  }
  static v1::Prediction Planned() {
    v1::Prediction plan;
    plan.set_profile("slowest of two");
    plan.set_peak_bytes(96 << 20);
    (*plan.mutable_peak_bytes_by_category())["weights"] = 32 << 20;
    (*plan.mutable_peak_bytes_by_category())["activations"] = 64 << 20;
    plan.set_step_seconds(0.5);
    plan.set_tokens_per_second(2000);
    plan.set_mfu(0.4);
    plan.set_exposed_seconds(0.02);
    v1::PassPrediction& pass = *plan.add_passes();
    pass.set_pass("attention_forward");
    pass.set_exposed_seconds(0.02);
    return plan;
  }
  std::string Queued(const std::string& name, int degree = 2, const v1::Prediction& prediction = Planned()) {
    v1::Plan plan;
    plan.set_degree(degree);
    return table_
        .Add("request-" + std::to_string(++requests_), SmallJob(name, degree, 1000), plan, prediction)
        ->id();
  }
  /// Starts it on workers w-0, w-1, ...
  std::string Running(const std::string& id, int degree = 2) {
    std::vector<Placement> placement;
    for (int r = 0; r < degree; ++r)
      placement.push_back({"w-" + std::to_string(r), "http://127.0.0.1:9100/metrics"});
    const std::string attempt = *table_.StartAttempt(id, placement);
    for (int r = 0; r < degree; ++r) EXPECT_THAT(table_.RankStarted(attempt, r, "runs"), IsOk());
    return attempt;
  }
  /// One step of every rank; the last rank holds most.
  void Step(const std::string& attempt, int step, int degree = 2, std::optional<double> loss = {}) {
    for (int r = 0; r < degree; ++r) {
      v1::StepReport report;
      report.set_rank(r);
      report.set_step(step);
      report.set_loss(loss.value_or(5.0 / step));
      report.set_step_seconds(0.25);
      report.set_tokens(1000);
      report.set_model_flops(1e9);
      (*report.mutable_peak_bytes_by_category())["weights"] = 32 << 20;
      (*report.mutable_peak_bytes_by_category())["activations"] = (30 + 10 * r) << 20;
      report.set_peak_bytes((62 + 10 * r) << 20);
      (*report.mutable_current_bytes())["weights"] = 32 << 20;
      v1::PassTimes& pass = (*report.mutable_passes())["attention_forward"];
      pass.set_compute_seconds(0.1);
      pass.set_communication_seconds(0.04);
      pass.set_exposed_seconds(0.01);
      const v1::PassTimes times = pass;
      for (int i = 1; i < passes_; ++i) (*report.mutable_passes())["pass_" + std::to_string(i)] = times;
      EXPECT_THAT(table_.Report(attempt, report), IsOk());
    }
  }
  PageContext Context() {
    return {.jobs = table_,
            .workers = workers_,
            .coordinator = "127.0.0.1:7070",
            .started = clock_.Wall(),
            .now = clock_.Wall()};
  }

  CoordinatorConfig config_;
  FakeClock clock_;
  MemoryStore store_;
  ChangeHub changes_;
  JobTable table_{config_, clock_, store_, changes_};
  Registry workers_{config_, clock_};
  int requests_ = 0;
  int passes_ = 1;  // that a step has
};

/// How often `part` is in `text`.
inline int Times(const std::string& text, const std::string& part) {
  int times = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++times;
  return times;
}

}  // namespace metp
