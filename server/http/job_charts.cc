#include "server/http/job_charts.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/support/figures.h"
#include "server/http/html.h"
#include "server/http/job_series.h"
#include "server/http/svg_chart.h"

namespace metp {
namespace {

constexpr size_t kRowsShown = 12;  // of a chart's table
// A page is read anew every few seconds: what it draws is bounded, however long the job and however many its passes.
constexpr size_t kAreaPoints = 200, kMultiplePoints = 100, kMultipleHits = 30;

std::string BytesLabel(double bytes) { return Bytes(bytes); }
std::string Rate(double tokens) { return Grouped(std::llround(tokens)); }

/// Without the zeros at the end.
std::string Plain(double value) { return absl::StrFormat("%g", value); }

std::string Swatch(const std::string& color) {
  return absl::StrCat("<i style=\"background:var(", color, ")\"></i>");
}

/// "steps 12 to 15" or "step 12".
std::string Steps(int first, int last) {
  return first == last ? Grouped(first) : absl::StrCat(Grouped(first), " to ", Grouped(last));
}

/// Places of at most kRowsShown of `n`, the first and the last among them.
std::vector<size_t> Places(size_t n) {
  std::vector<size_t> places;
  const size_t rows = std::min(n, kRowsShown);
  for (size_t i = 0; i < rows; ++i) places.push_back(rows < 2 ? 0 : i * (n - 1) / (rows - 1));
  return places;
}

std::string Folded(const std::string& summary, const std::string& html) {
  return absl::StrCat("<details><summary>", Escape(summary), "</summary>", html, "</details>\n");
}

std::string Wide(const std::string& chart) { return absl::StrCat("<div class=\"wide\">", chart, "</div>"); }

/// What a coordinator that was started after the job cannot know.
std::string SinceNote(const JobTable::View& job) {
  const std::vector<JobHistory::Point>& points = job.history.points();
  if (points.empty() || job.curve.empty() || points.front().first_step <= job.curve.front().first_step)
    return "";
  return absl::StrCat(
      "<p class=\"note\">From step ", Grouped(points.front().first_step),
      " on: these figures are kept in memory only, and began anew with this coordinator.</p>");
}

/// Why there are none.
std::string NoHistory(const JobTable::View& job) {
  if (IsTerminal(job.status.state()))
    return Empty(
        "Not kept any more: memory and passes over time go when later jobs have ended, or with the "
        "coordinator.");
  if (!job.curve.empty())
    return Empty("This coordinator was started after the last step; the next one fills this.");
  return Empty("Nothing measured yet: the first step that every rank has done fills this.");
}

}  // namespace

const v1::RankStatus* FullestRank(const v1::JobStatus& status) {
  const v1::RankStatus* fullest = nullptr;
  for (const v1::RankStatus& rank : status.ranks()) {
    if (rank.peak_bytes() > (fullest == nullptr ? 0 : fullest->peak_bytes())) fullest = &rank;
  }
  return fullest;
}

std::string LossSection(const JobTable::View& job) {
  if (job.curve.empty()) {
    return Section("loss", "Loss",
                   Empty("No step yet. Every step that all ranks have done adds a point here."));
  }
  Chart chart{.id = "c-loss", .title = "Loss over steps", .format = Short, .tick = Plain, .from_zero = false};
  Series loss{.name = "loss", .color = "--s0"};
  for (const CurvePoint& point : job.curve) {
    chart.steps.push_back(point.last_step);
    loss.values.push_back(point.loss);
    loss.lowest.push_back(point.lowest_loss);
    loss.highest.push_back(point.highest_loss);
  }
  const CurvePoint &first = job.curve.front(), &last = job.curve.back();
  chart.description = absl::StrCat("From ", Short(first.loss), " at step ", first.first_step, " to ",
                                   Short(last.loss), " at step ", last.last_step, ".");
  HtmlTable table("Loss over steps", {{"Steps"}, {"Loss", true}, {"Lowest", true}, {"Highest", true}});
  for (const size_t i : Places(job.curve.size())) {
    const CurvePoint& point = job.curve[i];
    table.Row({Text(Steps(point.first_step, point.last_step)), Text(Short(point.loss)),
               Text(Short(point.lowest_loss)), Text(Short(point.highest_loss))});
  }
  return Section("loss", "Loss", Wide(LineChart(chart, {loss})) + Folded("As a table", table.Html()),
                 absl::StrCat(Short(first.loss), " → <b>", Short(last.loss), "</b>"));
}

std::string SpeedSection(const JobTable::View& job) {
  if (job.curve.empty()) return Section("speed", "Speed", Empty("No step yet."));
  Chart chart{.id = "c-speed", .title = "Tokens per second over steps", .format = Rate};
  Series speed{.name = "tokens/s", .color = "--s2"};
  for (const CurvePoint& point : job.curve) {
    chart.steps.push_back(point.last_step);
    speed.values.push_back(point.tokens_per_second);
  }
  const double planned = job.status.prediction().tokens_per_second();
  if (planned > 0) chart.references.push_back({absl::StrCat("plan ", Rate(planned)), planned});
  chart.description = absl::StrCat("Last: ", Rate(job.curve.back().tokens_per_second), " tokens per second",
                                   planned > 0 ? absl::StrCat("; the plan says ", Rate(planned)) : "", ".");
  HtmlTable table("Tokens per second over steps", {{"Steps"}, {"Tokens/s", true}});
  for (const size_t i : Places(job.curve.size())) {
    table.Row({Text(Steps(job.curve[i].first_step, job.curve[i].last_step)),
               Text(Rate(job.curve[i].tokens_per_second))});
  }
  return Section("speed", "Speed", Wide(LineChart(chart, {speed})) + Folded("As a table", table.Html()),
                 absl::StrCat("<b>", Rate(job.status.tokens_per_second()), " tokens/s</b> over the last ",
                              job.rate.steps, job.rate.steps == 1 ? " step" : " steps"));
}

std::string MemorySection(const JobTable::View& job, int64_t capacity) {
  const std::vector<JobHistory::Point>& points = job.history.points();
  if (points.empty()) return Section("memory", "Memory by category", NoHistory(job));
  Chart chart{.id = "c-memory",
              .title = "Peak memory of the fullest rank by category, over steps",
              .format = BytesLabel,
              .bytes = true};
  const JobHistory drawn = Thinned(job.history, kAreaPoints);
  for (const JobHistory::Point& point : drawn.points()) chart.steps.push_back(point.last_step);
  const std::vector<MemoryOver> drawn_categories = MemoryOverSteps(drawn);  // the same, in the same order
  std::vector<Series> areas;
  std::string legend = "<ul class=\"legend\">";
  HtmlTable table("Memory of the fullest rank by category",
                  {{"Category"}, {"At its peak", true}, {"At the end of a step", true}, {"Plan", true}});
  const v1::Prediction& plan = job.status.prediction();
  double peak = 0, held = 0;
  const std::vector<MemoryOver> categories = MemoryOverSteps(job.history);
  for (size_t i = 0; i < categories.size(); ++i) {
    const MemoryOver& category = categories[i];
    peak += category.peak.back();
    held += category.current.back();
    if (*std::max_element(category.peak.begin(), category.peak.end()) <= 0) continue;
    areas.push_back({category.name, category.color, drawn_categories[i].peak});
    absl::StrAppend(&legend, "<li>", Swatch(category.color), Escape(category.name), " <span>",
                    Bytes(category.peak.back()), "</span></li>");
    const auto planned = plan.peak_bytes_by_category().find(category.name);
    table.Row(
        {Text(category.name), Text(Bytes(category.peak.back())), Text(Bytes(category.current.back())),
         Text(planned == plan.peak_bytes_by_category().end() ? "-"
                                                             : Bytes(static_cast<double>(planned->second)))});
  }
  table.Row({Text("all"), Text(Bytes(peak)), Text(Bytes(held)),
             Text(job.status.has_prediction() ? Bytes(static_cast<double>(plan.peak_bytes())) : "-")});
  if (job.status.has_prediction())
    chart.references.push_back({"plan", static_cast<double>(plan.peak_bytes())});
  if (capacity > 0) chart.references.push_back({"device", static_cast<double>(capacity)});
  for (const Reference& line : chart.references) {
    absl::StrAppend(&legend, "<li><i class=\"line\"></i>",
                    line.name == "plan" ? "planned peak" : "memory of the device", " <span>",
                    Bytes(line.value), ShowsReference(areas, line) ? "" : ", above this chart",
                    "</span></li>");
  }
  chart.description =
      absl::StrCat("At the last step the fullest rank had a peak of ", Bytes(peak),
                   capacity > 0 ? absl::StrCat(" of ", Bytes(static_cast<double>(capacity))) : "",
                   ". The table below has the categories.");
  return Section(
      "memory", "Memory by category",
      absl::StrCat("<div class=\"two\"><div><h3>At the peak, over steps</h3>", Wide(AreaChart(chart, areas)),
                   legend, "</ul>", SinceNote(job), Folded("As a table", table.Html()),
                   "</div><div><h3>At the peak, plan and measured</h3>", PeakBars(job), "</div></div>\n"),
      absl::StrCat("peak <b>", Bytes(peak), "</b> of the fullest rank"));
}

std::string OverlapSection(const JobTable::View& job) {
  HtmlTable table("Seconds of each pass, summed over the ranks and steps of this attempt",
                  {{"Pass"},
                   {"Computing", true},
                   {"Communication", true},
                   {"Exposed", true},
                   {"Skew", true},
                   {"Hidden", true}});
  for (const auto& [name, times] : PassTotals(job.status)) {
    const double moving = times.communication_seconds();
    table.Row({Text(PassLabel(name)), Text(Duration(times.compute_seconds())), Text(Duration(moving)),
               Text(Duration(times.exposed_seconds())), Text(Duration(times.skew_seconds())),
               Text(moving > 0 ? Percent(std::max(0.0, 1 - times.exposed_seconds() / moving)) : "-")});
  }
  std::string html, aside;
  if (job.history.points().empty()) {
    html = NoHistory(job);
  } else if (job.status.plan().degree() < 2) {
    html = Empty("One rank to a ring: nothing is communicated.");
  }
  std::vector<double> steps;
  const JobHistory drawn = Thinned(job.history, kMultiplePoints);
  for (const JobHistory::Point& point : drawn.points()) steps.push_back(point.last_step);
  const std::vector<PassOver> drawn_passes = PassesOverSteps(drawn);  // the same, in the same order
  std::string multiples;
  const std::vector<PassOver> passes = PassesOverSteps(job.history);
  for (size_t i = 0; i < passes.size(); ++i) {
    const PassOver& pass = passes[i];
    if (!pass.communicates) continue;
    const Chart chart{
        .id = "c-pass-" + pass.name,
        .title = absl::StrCat("Hidden communication of ", PassLabel(pass.name), ", over steps"),
        .description = absl::StrCat(Percent(pass.recent), " over the last steps; the upper edge is 100 %."),
        .steps = steps,
        .format = Percent,
        .top = 1,
        .width = 200,
        .height = 58,
        .hits = kMultipleHits};
    absl::StrAppend(&multiples, "<div class=\"multiple\"><p><span>", Escape(PassLabel(pass.name)),
                    "</span><b>", absl::StrFormat("%.0f %%", 100 * pass.recent), "</b></p>",
                    SmallChart(chart, {"hidden", "--s0", drawn_passes[i].hidden}), "</div>\n");
  }
  if (!multiples.empty()) {
    absl::StrAppend(&html, "<div class=\"multiples\">", multiples, "</div>", SinceNote(job));
    aside = "communication that computing hides, 0 to 100 %";
  }
  if (table.rows() > 0) absl::StrAppend(&html, Folded("Seconds of each pass as a table", table.Html()));
  return Section("overlap", "Overlap by pass", html, aside);
}

}  // namespace metp
