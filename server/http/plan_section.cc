// A job's plan against what its ranks measured.

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/support/figures.h"
#include "server/http/html.h"
#include "server/http/job_charts.h"
#include "server/http/job_series.h"
#include "server/http/svg_chart.h"
#include "worker/model/plan.h"

namespace metp {
namespace {

using Values = std::map<std::string, double>;

constexpr char kLegend[] =
    "<ul class=\"legend\"><li><i class=\"hollow\"></i>plan</li>"
    "<li><i style=\"background:var(--run)\"></i>measured</li></ul>";

/// "+9.1 %", measured over planned.
Markup Difference(double planned, double measured) {
  if (planned <= 0 || measured <= 0) return Text("-");
  return Text(absl::StrFormat("%+.1f %%", 100 * (measured / planned - 1)));
}

Markup Figure(double value, std::string (*format)(double)) { return Text(value > 0 ? format(value) : "-"); }

std::string Rate(double tokens) { return Grouped(std::lround(tokens)); }

std::optional<double> At(const Values& values, const std::string& name) {
  const auto found = values.find(name);
  return found == values.end() ? std::nullopt : std::optional<double>(found->second);
}

/// Rows in the order of `place`, without those that are nothing on both sides.
std::vector<BarPair> Pairs(const Values& planned, const Values& measured, size_t (*place)(const std::string&),
                           std::string (*label)(std::string)) {
  std::set<std::pair<size_t, std::string>> names;
  for (const Values* values : {&planned, &measured}) {
    for (const auto& [name, value] : *values) {
      if (value > 0) names.emplace(place(name), name);
    }
  }
  std::vector<BarPair> rows;
  for (const auto& [at, name] : names) rows.push_back({label(name), At(planned, name), At(measured, name)});
  return rows;
}

std::string PairTable(const std::string& caption, const std::string& first, const std::vector<BarPair>& rows,
                      std::string (*format)(double)) {
  HtmlTable table(caption, {{first}, {"Plan", true}, {"Measured", true}});
  for (const BarPair& row : rows) {
    const auto cell = [format](const std::optional<double>& value) {
      return Text(value.has_value() ? format(*value) : "-");
    };
    table.Row({Text(row.name), cell(row.planned), cell(row.measured)});
  }
  return absl::StrCat("<details><summary>As a table</summary>", table.Html(), "</details>");
}

std::string ExposedBars(const JobTable::View& job, const RecentPasses& recent) {
  Values planned, measured;
  for (const v1::PassPrediction& pass : job.status.prediction().passes())
    planned[pass.pass()] = pass.exposed_seconds();
  for (const auto& [name, seconds] : recent.passes) measured[name] = seconds.exposed;
  const std::vector<BarPair> rows = Pairs(planned, measured, PassPlace, PassLabel);
  if (rows.empty()) return Empty("No pass is exposed, neither in the plan nor as measured.");
  const Chart chart{.id = "c-exposed",
                    .title = "Exposed seconds of a step by pass, plan and measured",
                    .description =
                        "One pair of bars for each pass: above the plan, below what was measured. The table "
                        "below has the figures.",
                    .format = ShortTime};
  return absl::StrCat("<div class=\"wide\">", BarChart(chart, rows), "</div>", kLegend,
                      PairTable("Exposed seconds of a step by pass", "Pass", rows, ShortTime),
                      "<p class=\"note\">Plan: its slowest rank. Measured: the mean rank",
                      recent.steps > 0
                          ? absl::StrCat(", last ", recent.steps, recent.steps == 1 ? " step" : " steps")
                          : ", nothing yet",
                      ".</p>");
}

}  // namespace

std::string PeakBars(const JobTable::View& job) {
  Values planned, measured;
  for (const auto& [name, bytes] : job.status.prediction().peak_bytes_by_category())
    planned[name] = static_cast<double>(bytes);
  if (const v1::RankStatus* fullest = FullestRank(job.status)) {
    for (const auto& [name, bytes] : fullest->peak_bytes_by_category())
      measured[name] = static_cast<double>(bytes);
  }
  const auto as_it_is = [](std::string name) { return name; };
  const std::vector<BarPair> rows = Pairs(planned, measured, CategoryPlace, as_it_is);
  if (rows.empty()) return Empty("Nothing measured yet.");
  const Chart chart{.id = "c-peak",
                    .title = "Memory at the peak by category, plan and measured",
                    .description =
                        "One pair of bars for each category: above the plan, below what was measured. The "
                        "table below has the figures.",
                    .format = Bytes};
  return absl::StrCat("<div class=\"wide\">", BarChart(chart, rows), "</div>", kLegend,
                      PairTable("Memory at the peak by category", "Category", rows, Bytes),
                      "<p class=\"note\">Both: the rank with most.</p>");
}

std::string PlanSection(const JobTable::View& job) {
  const v1::JobStatus& status = job.status;
  const v1::Prediction& plan = status.prediction();
  const std::string settings =
      Escape(absl::StrCat(RanksOf(status.plan()), RanksOf(status.plan()) == 1 ? " rank, " : " ranks, ",
                          PlanSettings(status.plan())));
  std::string html;
  if (!status.has_prediction())
    html = Empty("No prediction: no worker had measured its machine when this job was planned.");
  const RecentPasses recent = PassesLately(job.history, RanksOf(status.plan()));
  double exposed = 0;
  for (const auto& [name, seconds] : recent.passes) exposed += seconds.exposed;
  const double step = job.rate.steps > 0 ? job.rate.seconds / job.rate.steps : 0;
  const v1::RankStatus* fullest = FullestRank(status);
  const double peak = fullest == nullptr ? 0 : static_cast<double>(fullest->peak_bytes());
  HtmlTable table("Plan against measured",
                  {{"A step"}, {"Plan", true}, {"Measured", true}, {"Difference", true}});
  const auto row = [&table](const std::string& name, double planned, double measured,
                            std::string (*format)(double)) {
    table.Row({Text(name), Figure(planned, format), Figure(measured, format), Difference(planned, measured)});
  };
  row("Time", plan.step_seconds(), step, Duration);
  row("Tokens/s", plan.tokens_per_second(), status.tokens_per_second(), Rate);
  row("MFU", plan.mfu(), MeasuredMfu(status), Percent);
  row("Exposed, all passes", plan.exposed_seconds(), exposed, ShortTime);
  row("Peak memory", static_cast<double>(plan.peak_bytes()), peak, Bytes);
  absl::StrAppend(&html, "<div class=\"two\"><div>", table.Html());
  std::string notes;
  if (!plan.profile().empty())
    absl::StrAppend(&notes, "Simulated on the profile ", Code(plan.profile()).html, ". ");
  for (const std::string& note : status.plan().notes()) absl::StrAppend(&notes, Escape(note), ". ");
  if (!notes.empty()) absl::StrAppend(&html, "<p class=\"note\">", notes, "</p>");
  absl::StrAppend(&html, "</div><div><h3>Exposed seconds of a step</h3>", ExposedBars(job, recent),
                  "</div></div>\n");
  return Section("plan", "Plan against measured", html, settings);
}

}  // namespace metp
