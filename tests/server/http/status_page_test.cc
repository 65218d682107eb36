#include "server/http/status_page.h"

#include "tests/server/http/status_fixture.h"

namespace metp {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

using StatusPageTest = StatusFixture;

TEST_F(StatusPageTest, SaysWhatToDoWhereThereIsNothing) {
  const std::string page = StatusPage(Context());
  EXPECT_THAT(page,
              HasSubstr("No workers yet. Start one: <code>metp-worker --coordinator 127.0.0.1:7070</code>"));
  EXPECT_THAT(page, HasSubstr("<code>metpctl submit -f job.yaml --watch</code>"));
  EXPECT_THAT(page, HasSubstr("Nothing waits."));
}

TEST_F(StatusPageTest, ShowsWorkersTheQueueAndJobs) {
  AddWorker("w-0");
  AddWorker("w-1", "NVIDIA H200 GPU-5f6b1a2c, driver 580.95.05");
  workers_.SetDrained("w-1", true, "new fans");
  const std::string running = Queued("running"), waiting = Queued("waiting", 4);
  const std::string attempt = Running(running);
  for (int step = 1; step <= 3; ++step) Step(attempt, step);
  table_.SetWaiting({{waiting, "needs 4 workers, 0 are free"}});
  const std::string page = StatusPage(Context());
  EXPECT_THAT(page, HasSubstr("<a href=\"/jobs/running-1\">running-1</a>"));
  EXPECT_THAT(page, HasSubstr("RUNNING</span>"));
  EXPECT_THAT(page, HasSubstr("3 of 1,000"));
  EXPECT_THAT(page, HasSubstr("4,000 <span class=\"dim\">200 % of plan"));
  EXPECT_THAT(page, HasSubstr("72.0 MiB <span class=\"dim\">plan 96.0 MiB"));
  EXPECT_THAT(page, HasSubstr("needs 4 workers, 0 are free"));
  EXPECT_THAT(page, HasSubstr("READY, drained"));
  EXPECT_THAT(page, HasSubstr("new fans"));
  EXPECT_THAT(page, HasSubstr("<a href=\"/jobs/running-1\">running-1</a> rank 1"));
  EXPECT_THAT(page, HasSubstr("<th scope=\"row\">NVIDIA H200</th>"));
  EXPECT_THAT(page, HasSubstr("class=\"spark\""));
  EXPECT_EQ(Times(page, "<th scope=\"col\">Worker</th>"), 1);
}

TEST_F(StatusPageTest, TellsSuspectAndLostWorkersInWords) {
  AddWorker("w-0");
  clock_.Advance(config_.suspect_after + std::chrono::milliseconds(1));
  workers_.Expire();
  EXPECT_THAT(StatusPage(Context()), HasSubstr("SUSPECT</span> <span class=\"dim\">silent"));
  clock_.Advance(config_.lease);
  workers_.Expire();
  EXPECT_THAT(StatusPage(Context()), HasSubstr("LOST</span> <span class=\"dim\">not heard for longer"));
  EXPECT_THAT(StatusPage(Context()), HasSubstr("0 ready, 0 suspect, 1 lost, 0 drained"));
}

TEST_F(StatusPageTest, LetsNothingThatUsersWroteBecomeMarkup) {
  const std::string evil = "\"><script>alert('x')</script><img src=x onerror=y>&";
  AddWorker(evil, evil, "javascript:alert(1)");
  workers_.SetDrained(evil, true, evil);
  const std::string queued = Queued(evil), id = Queued(evil);
  table_.SetWaiting({{queued, evil}});
  const std::string attempt = Running(id);
  Step(attempt, 1);
  table_.NoteEvent(id, v1::JobEvent::WORKER, evil);
  ASSERT_THAT(table_.RankGone(attempt, 0, {EndKind::kError, evil}), IsOk());
  ASSERT_THAT(table_.RankGone(attempt, 1, {EndKind::kError, evil}), IsOk());
  for (const std::string& page :
       {StatusPage(Context()), *JobPage(Context(), id), NoJobPage(Context(), evil)}) {
    EXPECT_THAT(page, HasSubstr("&lt;script&gt;"));
    EXPECT_THAT(page, Not(HasSubstr("<script")));
    EXPECT_THAT(page, Not(HasSubstr("<img")));
    EXPECT_THAT(page, Not(HasSubstr("javascript:alert(1)\"")));
    EXPECT_THAT(page, Not(HasSubstr("\"\">")));
  }
}

TEST_F(StatusPageTest, StaysShortWithManyWorkersAndJobs) {
  config_.finished_jobs_kept = 20000;
  for (int i = 0; i < 1000; ++i) AddWorker("w-" + std::to_string(i));
  const v1::JobRecord one = [this] {
    Queued("job");
    return table_.Snapshot()[0];
  }();
  StoredState state;  // a store in memory takes its time for so many
  for (int i = 1; i <= 10000; ++i) {
    v1::JobRecord& record = state.jobs.emplace_back().record;
    record = one;
    record.set_sequence(i);
    record.set_request_id("r" + std::to_string(i));
    record.mutable_status()->set_id("job-" + std::to_string(i));
    if (i <= 5000) continue;
    record.mutable_status()->set_state(v1::JobStatus::CANCELLED);
    record.mutable_status()->mutable_finished()->set_seconds(i);
  }
  JobTable many(config_, clock_, store_, changes_);
  many.Load(state);
  const PageContext context = {.jobs = many,
                               .workers = workers_,
                               .coordinator = "127.0.0.1:7070",
                               .started = clock_.Wall(),
                               .now = clock_.Wall()};
  const auto begin = std::chrono::steady_clock::now();
  const std::string page = StatusPage(context);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  EXPECT_LT(page.size(), 500000u);
  EXPECT_LT(took.count(), METP_SANITIZED ? 5 : 0.5);
  EXPECT_THAT(page, HasSubstr("and 4,950 more: <code>metpctl get</code>"));
  EXPECT_THAT(page, HasSubstr("and 900 more: <code>metpctl workers</code>"));
  EXPECT_THAT(page, HasSubstr("1,000 of 1,000"));
  EXPECT_THAT(page, HasSubstr("Map of the workers"));
}

TEST_F(StatusPageTest, PutsTroubleFirstWhereNotAllWorkersAreShown) {
  for (int i = 0; i < 150; ++i) AddWorker("w-" + std::to_string(i));
  EXPECT_THAT(StatusPage(Context()), Not(HasSubstr(">w-149</a></th>")));
  workers_.SetDrained("w-149", true, "");
  EXPECT_THAT(StatusPage(Context()), HasSubstr(">w-149</a></th>"));
}

TEST_F(StatusPageTest, LoadsItselfAgainUnlessItIsPaused) {
  PageContext context = Context();
  EXPECT_THAT(StatusPage(context), HasSubstr("<meta http-equiv=\"refresh\""));
  EXPECT_THAT(StatusPage(context), HasSubstr("href=\"/?refresh=0\""));
  context.paused = true;
  EXPECT_THAT(StatusPage(context), Not(HasSubstr("http-equiv=\"refresh\"")));
}

TEST_F(StatusPageTest, SaysThatTheStoreTakesNothing) {
  PageContext context = Context();
  EXPECT_THAT(StatusPage(context), Not(HasSubstr("role=\"alert\"")));
  context.store_writable = false;
  EXPECT_THAT(StatusPage(context), HasSubstr("The store takes no changes."));
}

TEST_F(StatusPageTest, NeedsNothingFromElsewhere) {
  AddWorker("w-0", "cpu", "");
  Step(Running(Queued("job")), 1);
  for (const std::string& page : {StatusPage(Context()), *JobPage(Context(), "job-1")}) {
    for (const char* part : {"<script", "<link", "<img", "@import", "url(", "src=", "https://"}) {
      EXPECT_THAT(page, Not(HasSubstr(part)));
    }
  }
}

TEST_F(StatusPageTest, ReadsASampleOfALongJobsLosses) {
  const std::string id = Queued("job", 1), attempt = Running(id, 1);
  Step(attempt, 1, 1, 2.0);
  Step(attempt, 2, 1, 1e9);  // between the steps that are looked at
  for (int step = 3; step < 6000; ++step) Step(attempt, step, 1, 2.0);
  Step(attempt, 6000, 1, 1.0);
  const std::vector<double> losses = table_.ReadOverview(5).trends.at(id).losses;
  ASSERT_LE(losses.size(), 60u);
  ASSERT_GE(losses.size(), 50u);
  EXPECT_EQ(losses.front(), 2.0);
  EXPECT_EQ(losses.back(), 1.0);
  const absl::StatusOr<JobTable::View> view = table_.ReadView(id, 60);
  EXPECT_EQ(view->curve.front().first_step, 1);
  EXPECT_EQ(view->curve.back().last_step, 6000);
  EXPECT_EQ(view->curve.back().lowest_loss, 1.0);
}

TEST_F(StatusPageTest, ReadsEveryLossOfAShortJob) {
  const std::string id = Queued("job", 1), attempt = Running(id, 1);
  for (int step = 1; step <= 60; ++step) Step(attempt, step, 1, step);
  const std::vector<double> losses = table_.ReadOverview(5).trends.at(id).losses;
  ASSERT_EQ(losses.size(), 60u);
  for (size_t i = 0; i < 60; ++i) EXPECT_EQ(losses[i], static_cast<double>(i + 1));
  EXPECT_TRUE(table_.ReadOverview(5, /*with_trends=*/false).trends.empty());
}

}  // namespace
}  // namespace metp
