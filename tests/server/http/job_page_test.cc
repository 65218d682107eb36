#include "server/http/job_page.h"

#include <set>
#include <sstream>

#include "server/http/job_charts.h"
#include "tests/server/http/status_fixture.h"

namespace metp {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class StatusPageOfAJob : public StatusFixture {
 protected:
  void SetUp() override {
    AddWorker("w-0");
    AddWorker("w-1");
  }
  std::string Page() { return *JobPage(Context(), "job-1"); }
};

TEST_F(StatusPageOfAJob, SaysWhatIsMissingBeforeTheFirstStep) {
  const std::string id = Queued("job");
  table_.SetWaiting({{id, "needs 2 workers, 1 is free"}});
  const std::string page = Page();
  EXPECT_THAT(page, HasSubstr("needs 2 workers, 1 is free"));
  EXPECT_THAT(page, HasSubstr("No step yet."));
  EXPECT_THAT(page, HasSubstr("Nothing measured yet"));
  EXPECT_THAT(page, HasSubstr("No attempt has been made yet"));
  EXPECT_THAT(JobPage(Context(), "nobody-9"), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(NoJobPage(Context(), "nobody-9"), HasSubstr("No job nobody-9"));
}

TEST_F(StatusPageOfAJob, ShowsItsLossMemoryAndOverlapOverSteps) {
  const std::string attempt = Running(Queued("job"));
  for (int step = 1; step <= 40; ++step) Step(attempt, step);
  const std::string page = Page();
  EXPECT_THAT(page, HasSubstr("<title id=\"c-loss-t\">Loss over steps</title>"));
  EXPECT_THAT(page, HasSubstr("From 5.0000 at step 1 to 0.1250 at step 40."));
  EXPECT_THAT(page, HasSubstr("<title id=\"c-memory-t\">"));
  EXPECT_THAT(page, HasSubstr("peak of 72.0 MiB of 1.0 GiB"));  // of rank 1, which holds most
  EXPECT_THAT(page, HasSubstr("<th scope=\"row\">activations</th><td class=\"n\">40.0 MiB</td>"));
  EXPECT_THAT(page, HasSubstr("memory of the device <span>1.0 GiB, above this chart"));
  EXPECT_THAT(page, HasSubstr("planned peak <span>96.0 MiB</span>"));
  EXPECT_THAT(page, HasSubstr("<title id=\"c-pass-attention_forward-t\">"));
  EXPECT_THAT(page, HasSubstr("attention forward</span><b>75 %</b>"));
  // Every chart has its figures as a table too, and every SVG a name.
  EXPECT_EQ(Times(page, "role=\"img\""), Times(page, "<title id="));
  EXPECT_THAT(page, HasSubstr("<caption>Loss over steps</caption>"));
}

TEST_F(StatusPageOfAJob, DrawsALossThatDoesNotChange) {
  const std::string attempt = Running(Queued("job", 1), 1);
  for (int step = 1; step <= 4000; ++step) Step(attempt, step, 1, 0.1);
  const absl::StatusOr<JobTable::View> view = table_.ReadView("job-1", 60);
  for (const CurvePoint& point : view->curve) {
    EXPECT_GE(point.loss, point.lowest_loss);
    EXPECT_LE(point.loss, point.highest_loss);
  }
  EXPECT_THAT(Page(), HasSubstr("From 0.1000 at step 1 to 0.1000 at step 4000."));
  EXPECT_THAT(StatusPage(Context()), HasSubstr("class=\"spark\""));
}

TEST_F(StatusPageOfAJob, StaysSmallHoweverLongTheJob) {
  passes_ = 8;
  const std::string attempt = Running(Queued("job", 4), 4);
  for (int step = 1; step <= 5000; ++step) Step(attempt, step, 4);
  const std::string page = Page();
  EXPECT_EQ(Times(page, "class=\"multiple\""), 8);
  EXPECT_LT(page.size(), 200000u);
  EXPECT_LE(Times(page, "class=\"hit\""), 3 * 120 + 8 * 30);
}

TEST_F(StatusPageOfAJob, PutsThePlanBesideWhatWasMeasured) {
  const std::string attempt = Running(Queued("job"));
  for (int step = 1; step <= 40; ++step) Step(attempt, step);
  const std::string page = Page();
  const auto row = [](const std::string& name, const std::string& plan, const std::string& measured,
                      const std::string& difference) {
    return "<th scope=\"row\">" + name + "</th><td class=\"n\">" + plan + "</td><td class=\"n\">" + measured +
           "</td><td class=\"n\">" + difference + "</td>";
  };
  EXPECT_THAT(page, HasSubstr(row("Time", "0.500 s", "0.250 s", "-50.0 %")));
  EXPECT_THAT(page, HasSubstr(row("Tokens/s", "2,000", "4,000", "+100.0 %")));
  EXPECT_THAT(page, HasSubstr(row("MFU", "40.0 %", "80.0 %", "+100.0 %")));
  EXPECT_THAT(page, HasSubstr(row("Exposed, all passes", "20.0 ms", "10.0 ms", "-50.0 %")));
  EXPECT_THAT(page, HasSubstr(row("Peak memory", "96.0 MiB", "72.0 MiB", "-25.0 %")));
  EXPECT_THAT(page, HasSubstr("<th scope=\"row\">attention forward</th><td class=\"n\">20.0 ms</td><td "
                              "class=\"n\">10.0 ms</td>"));
  EXPECT_THAT(page, HasSubstr("slowest of two"));
}

TEST_F(StatusPageOfAJob, DoesWithoutAPlan) {
  const std::string attempt = Running(Queued("job", 2, {}));
  Step(attempt, 1);
  EXPECT_THAT(Page(), HasSubstr("No prediction: no worker had measured its machine"));
  EXPECT_THAT(Page(), HasSubstr("<title id=\"c-memory-t\">"));
}

TEST_F(StatusPageOfAJob, SaysFromWhichStepANewCoordinatorHasFigures) {
  const std::string id = Queued("job"), attempt = Running(id);
  for (int step = 1; step <= 5; ++step) Step(attempt, step);
  ASSERT_THAT(table_.Flush(), IsOk());
  JobTable later(config_, clock_, store_, changes_);
  later.Load(*store_.Load());
  PageContext context = {.jobs = later,
                         .workers = workers_,
                         .coordinator = "127.0.0.1:7070",
                         .started = clock_.Wall(),
                         .now = clock_.Wall()};
  EXPECT_THAT(*JobPage(context, id), HasSubstr("This coordinator was started after the last step"));
  for (int r = 0; r < 2; ++r) {
    v1::StepReport report;
    report.set_rank(r);
    report.set_step(6);
    report.set_step_seconds(0.25);
    (*report.mutable_peak_bytes_by_category())["weights"] = 32 << 20;
    (*report.mutable_passes())["attention_forward"].set_communication_seconds(0.04);
    ASSERT_THAT(later.Report(attempt, report), IsOk());
  }
  EXPECT_THAT(*JobPage(context, id), HasSubstr("From step 6 on: these figures are kept in memory only"));
}

TEST_F(StatusPageOfAJob, IsNotLoadedAgainOnceItHasEnded) {
  const std::string id = Queued("job"), attempt = Running(id);
  Step(attempt, 1);
  EXPECT_THAT(Page(), HasSubstr("http-equiv=\"refresh\""));
  ASSERT_THAT(table_.RankGone(attempt, 0, {EndKind::kDone, "done"}), IsOk());
  ASSERT_THAT(table_.RankGone(attempt, 1, {EndKind::kDone, "done"}), IsOk());
  EXPECT_THAT(Page(), HasSubstr("SUCCEEDED</span>"));
  EXPECT_THAT(Page(), Not(HasSubstr("http-equiv=\"refresh\"")));
}

TEST_F(StatusPageOfAJob, KeepsOfAHundredRanksTheFirst) {
  for (int i = 2; i < 100; ++i) AddWorker("w-" + std::to_string(i));
  const std::string id = Queued("job", 100);
  Step(Running(id, 100), 1, 100);
  EXPECT_THAT(Page(), HasSubstr("and 36 more: <code>metpctl describe job-1</code>"));
}

TEST_F(StatusPageOfAJob, StaysShortOverManySteps) {
  const std::string attempt = Running(Queued("job", 1), 1);
  for (int step = 1; step <= 20000; ++step) Step(attempt, step, 1);
  EXPECT_LT(Page().size(), 400000u);
  EXPECT_THAT(Page(), HasSubstr("at step 20000."));
}

}  // namespace
}  // namespace metp
