#include "server/http/site.h"

#include "nlohmann/json.hpp"
#include "tests/server/http/status_fixture.h"

namespace metp {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class StatusPageSite : public StatusFixture {
 protected:
  HttpPage Get(const std::string& page, const std::string& path, const std::string& accept,
               const std::string& query = "") {
    const auto pages = SitePages({.jobs = table_,
                                  .workers = workers_,
                                  .clock = clock_,
                                  .coordinator = [] { return "127.0.0.1:7070"; },
                                  .store_writable = [] { return true; }});
    return pages.at(page)({path, query, accept});
  }
  static constexpr char kBrowser[] = "text/html,application/xhtml+xml,*/*;q=0.8";
};

TEST_F(StatusPageSite, GivesBrowsersHtmlAndOthersText) {
  AddWorker("w-0");
  Queued("job");
  const HttpPage html = Get("/", "/", kBrowser), text = Get("/", "/", "*/*");
  EXPECT_EQ(html.type, "text/html; charset=utf-8");
  EXPECT_THAT(html.body, HasSubstr("<!doctype html>"));
  EXPECT_THAT(html.headers.at("Content-Security-Policy"), HasSubstr("default-src 'none'"));
  EXPECT_EQ(text.type, "text/plain; charset=utf-8");
  EXPECT_THAT(text.body, HasSubstr("job-1"));
  EXPECT_THAT(text.body, Not(HasSubstr("<")));
  EXPECT_EQ(Get("/status.txt", "/status.txt", kBrowser).body, text.body);
  EXPECT_THAT(Get("/", "/", kBrowser, "refresh=0").body, HasSubstr("paused"));
}

TEST_F(StatusPageSite, HasAPageForEachJob) {
  Queued("job");
  EXPECT_THAT(Get("/jobs/", "/jobs/job-1", kBrowser).body, HasSubstr("<h1>job-1</h1>"));
  EXPECT_THAT(Get("/jobs/", "/jobs/job-1", "*/*").body, HasSubstr("job-1 QUEUED"));
  EXPECT_THAT(Get("/jobs/", "/jobs/job", kBrowser).body, HasSubstr("<h1>job-1</h1>"));  // as metpctl finds it
  EXPECT_THAT(Get("/jobs/", "/jobs/job", "*/*").body, HasSubstr("job-1 QUEUED"));
  EXPECT_THAT(Get("/jobs", "/jobs", kBrowser).body, HasSubstr("<h1>Cluster</h1>"));
  EXPECT_EQ(Get("/jobs/", "/jobs/other-2", kBrowser).code, 404);
  EXPECT_EQ(Get("/jobs/", "/jobs/other-2", "*/*").code, 404);
  EXPECT_EQ(Get("/jobs/", "/jobs/", kBrowser).code, 404);
}

TEST_F(StatusPageSite, NamesTheWorkersMetricsForPrometheus) {
  EXPECT_EQ(Get("/sd/workers", "/sd/workers", "*/*").body, "[]");
  AddWorker("w-0", "cpu", "http://10.0.0.1:7072/metrics");
  AddWorker("w-1", "cpu", "https://gpu-1.example:7072/other/metrics");
  AddWorker("w-2", "cpu", "http://[::1]:7072");
  AddWorker("w-3", "cpu", "");
  AddWorker("w-\"4\xff", "cpu", "http://10.0.0.5:7072/metrics");
  const HttpPage page = Get("/sd/workers", "/sd/workers", "*/*");
  EXPECT_EQ(page.type, "application/json");
  const nlohmann::json targets = nlohmann::json::parse(page.body);
  ASSERT_EQ(targets.size(), 4u);
  std::map<std::string, nlohmann::json> labels;
  for (const auto& target : targets) labels[target["targets"].at(0)] = target["labels"];
  EXPECT_EQ(labels.at("10.0.0.1:7072"), nlohmann::json({{"worker", "w-0"}}));
  EXPECT_EQ(labels.at("gpu-1.example:7072")["__metrics_path__"], "/other/metrics");
  EXPECT_EQ(labels.at("gpu-1.example:7072")["__scheme__"], "https");
  EXPECT_EQ(labels.at("[::1]:7072"), nlohmann::json({{"worker", "w-2"}}));
}

TEST_F(StatusPageSite, TellsPrometheusWhatWasPlannedAndWhatWaits) {
  AddWorker("w-0");
  AddWorker("w-1");
  const std::string id = Queued("job"), waiting = Queued("wide", 4), busy = Queued("next");
  const std::string attempt = Running(id);
  const auto metrics = [this] { return Get("/metrics", "/metrics", "*/*").body; };
  const auto value = [&](const std::string& series) {
    const std::string text = metrics();
    const size_t at = text.find("\n" + series + " ");
    return at == std::string::npos ? -1 : std::stod(text.substr(at + series.size() + 2));
  };
  const double started = value("metp_job_progress_timestamp_seconds{job=\"job-1\"}");
  EXPECT_GT(started, 0);
  clock_.Advance(std::chrono::seconds(7));
  Step(attempt, 1);
  table_.SetWaiting({{waiting, "needs 4 workers", true, WaitCause::kWorkers}, {busy, "needs 2 workers"}});
  EXPECT_EQ(value("metp_job_progress_timestamp_seconds{job=\"job-1\"}"), started + 7);
  EXPECT_EQ(value("metp_worker_ready{worker=\"w-0\",node=\"\"}"), 1);
  EXPECT_EQ(value("metp_queue_jobs{reason=\"workers\"}"), 1);
  EXPECT_EQ(value("metp_queue_jobs{reason=\"busy\"}"), 1);
  EXPECT_EQ(value("metp_queue_jobs{reason=\"quota\"}"), 0);
  EXPECT_EQ(value("metp_job_planned_step_seconds{job=\"job-1\"}"), 0.5);
  EXPECT_EQ(value("metp_job_planned_memory_at_peak_bytes{job=\"job-1\",category=\"weights\"}"), 32 << 20);
  EXPECT_EQ(value("metp_job_planned_pass_exposed_seconds{job=\"job-1\",pass=\"attention_forward\"}"), 0.02);
  EXPECT_EQ(value("metp_job_mfu_ratio{job=\"job-1\"}"), 0.8);
  EXPECT_EQ(value("metp_state_free_bytes"), -1);  // no folder
  EXPECT_GT(value("metp_start_timestamp_seconds"), 0);
}

TEST_F(StatusPageSite, CountsAJobThatWaitsAfterAFaultByThat) {
  config_.restart_backoff = std::chrono::seconds(5);
  v1::JobSpec job = SmallJob("job", 1);
  job.set_max_restarts(3);
  v1::Plan plan;
  plan.set_degree(1);
  const std::string id = table_.Add("r", job, plan, {})->id();
  const std::string attempt = *table_.StartAttempt(id, {{"w-0", ""}});
  ASSERT_THAT(table_.RankGone(attempt, 0, {EndKind::kDeath, "gone"}), IsOk());
  EXPECT_EQ(table_.CountWaiting().at(WaitCause::kBackoff), 1);
  clock_.Advance(std::chrono::seconds(6));
  table_.TakeStops();
  EXPECT_EQ(table_.CountWaiting().at(WaitCause::kBackoff), 0);
  EXPECT_EQ(table_.CountWaiting().at(WaitCause::kBusy), 1);
}

}  // namespace
}  // namespace metp
