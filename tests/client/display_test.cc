// What metpctl shows.

#include <gmock/gmock.h>

#include "client/curve.h"
#include "client/exit_codes.h"
#include "client/format.h"
#include "client/json.h"
#include "client/summary.h"

namespace metp {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Format, MakesUrlsThatCanBeOpened) {
  EXPECT_EQ(OpenableUrl("http://0.0.0.0:7071", "node7:7070"), "http://node7:7071");
  EXPECT_EQ(OpenableUrl("http://[::]:80", "[fe80::1]:7070"), "http://[fe80::1]:80");
  EXPECT_EQ(OpenableUrl("http://127.0.0.1:7071", "node7:7070"), "http://127.0.0.1:7071");
  EXPECT_EQ(OpenableUrl("", "node7:7070"), "");
}

TEST(Format, WritesNumbersForPeople) {
  EXPECT_EQ(Bytes(0), "0 B");
  EXPECT_EQ(Bytes(1023), "1023 B");
  EXPECT_EQ(Bytes(1536), "1.5 KiB");
  EXPECT_EQ(Bytes(3.2 * (1 << 30)), "3.2 GiB");
  EXPECT_EQ(Duration(0.1234), "0.123 s");
  EXPECT_EQ(Duration(59.94), "59.9 s");
  EXPECT_EQ(Duration(125), "2m 05s");
  EXPECT_EQ(Duration(3 * 3600 + 240), "3h 04m");
  EXPECT_EQ(Grouped(0), "0");
  EXPECT_EQ(Grouped(999), "999");
  EXPECT_EQ(Grouped(-1234567), "-1,234,567");
  EXPECT_EQ(Scaled(1.234e12, "FLOP/s"), "1.23 TFLOP/s");
  EXPECT_EQ(Percent(0.9731), "97.3 %");
  EXPECT_EQ(Short(5.551432), "5.5514");
  EXPECT_EQ(Short(0.0000123), "1.230e-05");
}

TEST(Format, AlignsTables) {
  EXPECT_EQ(Table({{"NAME", "N"}, {"a", "10"}, {"\xC3\xA4\xC3\xB6\xC3\xBC", "7"}}, {1}),
            "NAME   N\na     10\n\xC3\xA4\xC3\xB6\xC3\xBC    7\n");
}

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t at = 0, end; (end = text.find('\n', at)) != std::string::npos; at = end + 1) {
    lines.push_back(text.substr(at, end - at));
  }
  return lines;
}

TEST(Curve, DrawsAFallingLineInAscii) {
  CurveStyle style;
  style.width = 18;
  style.height = 4;
  style.utf8 = false;
  const std::vector<std::string> lines = Lines(DrawCurve({{1, 4}, {2, 3}, {3, 2}, {4, 1}}, style));
  ASSERT_EQ(lines.size(), 7u);
  EXPECT_EQ(lines[0], "loss");
  EXPECT_EQ(lines[1], "4.0000 |***");
  EXPECT_EQ(lines[2], "       |  ****");
  EXPECT_EQ(lines[5].substr(0, 8), "       +");
  EXPECT_THAT(lines[6], AllOf(HasSubstr("1"), HasSubstr("step"), HasSubstr("4")));
}

TEST(Curve, UsesEveryDotOfABrailleCell) {
  CurveStyle style;
  style.width = 20;
  style.height = 3;
  std::vector<CurvePoint> points;
  for (int i = 0; i < 100; ++i) points.push_back({static_cast<double>(i), static_cast<double>(i % 2)});
  const std::string drawn = DrawCurve(points, style);
  EXPECT_THAT(drawn, HasSubstr("\xE2\xA0"));
  EXPECT_THAT(drawn, HasSubstr("\xE2\x94\x94"));
}

TEST(Curve, LeavesOutWhatIsNotFiniteAndSaysSo) {
  CurveStyle style;
  style.utf8 = false;
  EXPECT_EQ(DrawCurve({{1, NAN}}, style), "");
  EXPECT_THAT(DrawCurve({{1, 1}, {2, NAN}, {3, INFINITY}, {4, 2}}, style),
              HasSubstr("2 of 4 points are not finite"));
}

TEST(Curve, DrawsASinglePointAndAFlatLine) {
  CurveStyle style;
  style.utf8 = false;
  EXPECT_THAT(DrawCurve({{5, 2}}, style), HasSubstr("*"));
  EXPECT_THAT(DrawCurve({{1, 2}, {2, 2}}, style), HasSubstr("**"));
}

v1::JobStatus Measured() {
  v1::JobStatus status;
  status.set_id("job-1");
  status.set_state(v1::JobStatus::SUCCEEDED);
  status.set_reason("all 2 steps done");
  status.mutable_started()->set_seconds(100);
  status.mutable_finished()->set_seconds(112);
  for (int r = 0; r < 2; ++r) {
    v1::RankStatus& rank = *status.add_ranks();
    rank.set_rank(r);
    rank.set_worker("cpu-" + std::to_string(r));
    rank.set_metrics_url("http://127.0.0.1:" + std::to_string(9000 + r) + "/metrics");
    rank.set_peak_bytes(3 << 20);
    (*rank.mutable_peak_bytes_by_category())["weights"] = 2 << 20;
    (*rank.mutable_peak_bytes_by_category())["ring"] = 1 << 20;
    (*rank.mutable_peak_bytes_by_category())["workspace"] = 0;
    v1::PassTimes& pass = (*rank.mutable_passes())["mlp.forward"];
    pass.set_compute_seconds(4);
    pass.set_communication_seconds(2);
    pass.set_exposed_seconds(0.5);
    (*rank.mutable_passes())["loss"].set_compute_seconds(1);
  }
  return status;
}

std::vector<v1::StepPoint> Steps() {
  std::vector<v1::StepPoint> steps(2);
  for (int i = 0; i < 2; ++i) {
    steps[i].set_step(i + 1);
    steps[i].set_loss(5.0 - i);
    steps[i].set_step_seconds(0.5);
    steps[i].set_tokens(1000);
  }
  return steps;
}

TEST(Summary, ShowsWhatWasMeasured) {
  const std::string text = Summary(Measured(), Steps(), "http://127.0.0.1:7071", {});
  for (const char* part :
       {"Job job-1 SUCCEEDED: all 2 steps done (12.0 s)", "Loss: 5.0000 at step 1, 4.0000 at step 2",
        "2,000 tokens/s", "RANK  WORKER     PEAK     ring  weights", "mlp.forward", "75.0 %",
        "http://127.0.0.1:7071/metrics", "http://127.0.0.1:9001/metrics"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  EXPECT_THAT(text, Not(HasSubstr("workspace")));  // nothing was held there
  EXPECT_THAT(text, Not(HasSubstr("FLOP/s")));     // not reported
}

TEST(Summary, ShowsNoOverlapWhereNothingMoves) {
  v1::JobStatus status = Measured();
  for (v1::RankStatus& rank : *status.mutable_ranks()) {
    for (auto& [name, times] : *rank.mutable_passes()) times.set_communication_seconds(0);
  }
  EXPECT_THAT(OverlapTable(status), Not(HasSubstr("%")));
}

TEST(Summary, HasNothingToShowOfAJobThatNeverRan) {
  v1::JobStatus status;
  status.set_id("job-1");
  status.set_state(v1::JobStatus::CANCELLED);
  const std::string text = Summary(status, {}, "", {});
  EXPECT_THAT(text, HasSubstr("CANCELLED"));
  EXPECT_THAT(text, Not(HasSubstr("Loss")));
  EXPECT_THAT(text, Not(HasSubstr("Peak")));
}

TEST(Json, UsesTheNamesOfTheContract) {
  v1::StepPoint point;
  point.set_step(3);
  point.set_loss(0.1);
  EXPECT_EQ(
      ToJson(point, false),
      "{\"step\":3,\"loss\":0.1,\"grad_norm\":0,\"learning_rate\":0,\"step_seconds\":0,\"tokens\":\"0\","
      "\"model_flops\":0}");
}

TEST(ExitCodes, KeepErrorsOfTheCallApartFromOutcomesOfTheJob) {
  EXPECT_EQ(ExitCodeOf(v1::JobStatus::SUCCEEDED), 0);
  EXPECT_EQ(ExitCodeOf(v1::JobStatus::FAILED), 1);
  EXPECT_EQ(ExitCodeOf(v1::JobStatus::CANCELLED), 4);
  EXPECT_EQ(ExitCodeOf(absl::InvalidArgumentError("")), 2);
  EXPECT_EQ(ExitCodeOf(absl::UnavailableError("")), 3);
  EXPECT_EQ(ExitCodeOf(absl::DeadlineExceededError("")), 3);
  EXPECT_EQ(ExitCodeOf(absl::FailedPreconditionError("")), 5);
  EXPECT_EQ(ExitCodeOf(absl::NotFoundError("")), 6);
}

}  // namespace
}  // namespace metp
