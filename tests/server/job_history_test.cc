#include "server/job_history.h"

#include <gmock/gmock.h>

#include "server/job_table.h"
#include "server/store/memory_store.h"
#include "tests/support/fake_clock.h"
#include "tests/support/jobs.h"
#include "tests/support/status_matchers.h"

namespace metp {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

v1::StepReport Report(int rank, int step, int64_t weights = 100, int64_t ring = 10) {
  v1::StepReport report;
  report.set_rank(rank);
  report.set_step(step);
  report.set_step_seconds(1 + rank);
  (*report.mutable_peak_bytes_by_category())["weights"] = weights;
  (*report.mutable_peak_bytes_by_category())["ring"] = ring;
  (*report.mutable_current_bytes())["weights"] = weights / 2;
  v1::PassTimes& pass = (*report.mutable_passes())["mlp_forward"];
  pass.set_compute_seconds(8);
  pass.set_communication_seconds(4);
  pass.set_exposed_seconds(2);
  pass.set_skew_seconds(1);
  return report;
}

size_t At(const std::vector<std::string>& names, const std::string& name) {
  return static_cast<size_t>(std::find(names.begin(), names.end(), name) - names.begin());
}

TEST(JobHistory, MakesAPointWhenAllRanksHaveReportedTheStep) {
  JobHistory history;
  history.Add(Report(0, 1, 100), 2);
  EXPECT_THAT(history.points(), IsEmpty());
  history.Add(Report(1, 1, 300), 2);
  ASSERT_THAT(history.points(), SizeIs(1));
  const JobHistory::Point& point = history.points()[0];
  EXPECT_EQ(point.seconds, 2);                                            // of the slower
  EXPECT_EQ(point.peak_bytes[At(history.categories(), "weights")], 300);  // of the fuller
  EXPECT_EQ(point.current_bytes[At(history.categories(), "weights")], 150);
  EXPECT_EQ(point.passes[0].compute, 16);  // of both
  EXPECT_EQ(point.passes[0].communication, 8);
  EXPECT_EQ(point.passes[0].exposed, 4);
  EXPECT_EQ(point.passes[0].skew, 2);
}

TEST(JobHistory, CountsEarlierStepsOfWhichReportsWereLost) {
  JobHistory history;
  history.Add(Report(0, 1), 2);
  history.Add(Report(0, 2), 2);
  history.Add(Report(1, 2), 2);
  ASSERT_THAT(history.points(), SizeIs(2));
  EXPECT_EQ(history.points()[0].passes[0].compute, 8);
}

TEST(JobHistory, MergesNeighboursInPairsWhenItIsFull) {
  JobHistory history;
  const int steps = static_cast<int>(JobHistory::kMostPoints);
  for (int step = 1; step <= steps; ++step) history.Add(Report(0, step, step), 1);
  EXPECT_THAT(history.points(), SizeIs(steps));
  EXPECT_EQ(history.stride(), 1);
  history.Add(Report(0, steps + 1, 1), 1);
  EXPECT_THAT(history.points(), SizeIs(steps / 2 + 1));
  EXPECT_EQ(history.stride(), 2);
  const JobHistory::Point& first = history.points()[0];
  EXPECT_EQ(first.first_step, 1);
  EXPECT_EQ(first.last_step, 2);
  EXPECT_EQ(first.steps, 2);
  EXPECT_EQ(first.seconds, 2);
  EXPECT_EQ(first.peak_bytes[At(history.categories(), "weights")], 2);
  EXPECT_EQ(first.passes[0].communication, 8);
  history.Add(Report(0, steps + 2, 1), 1);  // the last point takes a second step before there is another
  EXPECT_THAT(history.points(), SizeIs(steps / 2 + 1));
  EXPECT_EQ(history.points().back().steps, 2);
}

TEST(JobHistory, LosesNoSecondsOverManySteps) {
  JobHistory history;
  constexpr int kSteps = 100000;
  for (int step = 1; step <= kSteps; ++step) history.Add(Report(0, step), 1);
  EXPECT_LE(history.points().size(), JobHistory::kMostPoints);
  EXPECT_GE(history.points().size(), JobHistory::kMostPoints / 4);
  double compute = 0;
  int steps = 0, next = 1;
  for (const JobHistory::Point& point : history.points()) {
    EXPECT_EQ(point.first_step, next);
    EXPECT_EQ(point.last_step - point.first_step + 1, point.steps);
    next = point.last_step + 1;
    steps += point.steps;
    compute += point.passes[0].compute;
  }
  EXPECT_EQ(steps, kSteps);
  EXPECT_EQ(compute, 8.0 * kSteps);
}

TEST(JobHistory, LetsALaterAttemptReplaceWhatItRepeats) {
  JobHistory history;
  for (int step = 1; step <= 6; ++step) history.Add(Report(0, step), 1);
  history.Add(Report(0, 7), 2);
  history.StartAttempt();
  history.Add(Report(0, 4), 1);
  ASSERT_THAT(history.points(), SizeIs(4));
  EXPECT_EQ(history.points().back().first_step, 4);
}

TEST(JobHistory, KeepsBoundedlyManyNames) {
  JobHistory history;
  v1::StepReport report = Report(0, 1);
  for (int i = 0; i < 100; ++i)
    (*report.mutable_passes())["pass " + std::to_string(i)].set_compute_seconds(1);
  history.Add(report, 1);
  EXPECT_THAT(history.passes(), SizeIs(JobHistory::kMostNames));
  EXPECT_THAT(history.points()[0].passes, SizeIs(JobHistory::kMostNames));
}

class JobHistoryOfTheTable : public ::testing::Test {
 protected:
  std::string Start() {
    v1::Plan plan;
    plan.set_degree(1);
    const std::string request = "r" + std::to_string(++jobs_);
    const std::string id = table_.Add(request, SmallJob("job", 1), plan, {})->id();
    return *table_.StartAttempt(id, {{"w" + std::to_string(jobs_), ""}});
  }
  void Steps(const std::string& attempt, int from, int to) {
    for (int step = from; step <= to; ++step) ASSERT_THAT(table_.Report(attempt, Report(0, step)), IsOk());
  }
  void End(const std::string& attempt) {
    ASSERT_THAT(table_.RankStarted(attempt, 0, ""), IsOk());
    ASSERT_THAT(table_.RankGone(attempt, 0, {EndKind::kDone, "done"}), IsOk());
    clock_.Advance(std::chrono::seconds(1));
  }
  size_t Points(const std::string& attempt) {
    return table_.ReadView(JobOfAttempt(attempt), 10)->history.points().size();
  }

  CoordinatorConfig config_;
  FakeClock clock_;
  MemoryStore store_;
  ChangeHub changes_;
  JobTable table_{config_, clock_, store_, changes_};
  int jobs_ = 0;
};

TEST_F(JobHistoryOfTheTable, KeepsThatOfTheLastEndedJobs) {
  config_.finished_histories_kept = 2;
  std::vector<std::string> attempts;
  for (int i = 0; i < 4; ++i) {
    attempts.push_back(Start());
    Steps(attempts.back(), 1, 3);
    End(attempts.back());
  }
  EXPECT_EQ(Points(attempts[0]), 0u);
  EXPECT_EQ(Points(attempts[1]), 0u);
  EXPECT_EQ(Points(attempts[2]), 3u);
  EXPECT_EQ(Points(attempts[3]), 3u);
}

TEST_F(JobHistoryOfTheTable, IsBoundedOverAllJobs) {
  config_.history_points = 1000;
  std::vector<std::string> attempts;
  for (int i = 0; i < 10; ++i) attempts.push_back(Start());
  for (int step = 1; step <= 500; ++step) {
    for (const std::string& attempt : attempts) Steps(attempt, step, step);
  }
  size_t sum = 0;
  for (const std::string& attempt : attempts) {
    EXPECT_GE(Points(attempt), 60u);
    sum += Points(attempt);
  }
  EXPECT_LE(sum, 1000u + 64 * attempts.size());
}

TEST_F(JobHistoryOfTheTable, ThinsTheCurveForAView) {
  const std::string attempt = Start();
  for (int step = 1; step <= 25; ++step) {
    v1::StepReport report = Report(0, step);
    report.set_loss(step);
    report.set_tokens(10);
    ASSERT_THAT(table_.Report(attempt, report), IsOk());
  }
  const auto view = table_.ReadView(JobOfAttempt(attempt), 10);
  ASSERT_THAT(view, IsOk());
  EXPECT_EQ(view->steps_known, 25);
  ASSERT_THAT(view->curve, SizeIs(9));  // of three steps, but the last
  EXPECT_EQ(view->curve[0].loss, 2);
  EXPECT_EQ(view->curve[0].lowest_loss, 1);
  EXPECT_EQ(view->curve[0].highest_loss, 3);
  EXPECT_EQ(view->curve[0].tokens_per_second, 10);
  EXPECT_EQ(view->curve.back().last_step, 25);
  EXPECT_EQ(view->rate.steps, 20);
  EXPECT_EQ(view->rate.tokens, 200);
}

}  // namespace
}  // namespace metp
