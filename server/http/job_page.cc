#include "server/http/job_page.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/support/figures.h"
#include "proto/support/status_macros.h"
#include "server/http/html.h"
#include "server/http/job_charts.h"
#include "server/http/job_series.h"
#include "worker/model/plan.h"

namespace metp {
namespace {

constexpr size_t kCurvePoints = 200;
constexpr int kRanksShown = 64;
constexpr size_t kEventsShown = 40;

/// Memory of the smallest device that the job runs on; 0: not known.
int64_t Capacity(const v1::JobStatus& job, const Registry& workers) {
  std::map<std::string, int64_t> memory;
  for (const v1::WorkerStatus& worker : workers.List()) memory[worker.name()] = worker.memory_bytes();
  int64_t smallest = 0;
  for (const v1::RankStatus& rank : job.ranks()) {
    const auto found = memory.find(rank.worker());
    if (found == memory.end() || found->second <= 0) continue;
    smallest = smallest == 0 ? found->second : std::min(smallest, found->second);
  }
  return smallest;
}

Markup OfPlan(double planned, const std::string& text) {
  return Text(planned > 0 ? absl::StrCat("plan ", text) : std::string("no plan"));
}

std::string Tiles(const JobTable::View& job, const PageContext& context) {
  const v1::JobStatus& status = job.status;
  const v1::Prediction& plan = status.prediction();
  const int steps = status.job().train().steps();
  const double step = job.rate.steps > 0 ? job.rate.seconds / job.rate.steps : 0;
  const v1::RankStatus* fullest = FullestRank(status);
  const double peak = fullest == nullptr ? 0 : static_cast<double>(fullest->peak_bytes());
  const auto figure = [](double value, const std::string& text) { return Text(value > 0 ? text : "-"); };
  std::string left = "-";
  if (IsTerminal(status.state())) {
    left = status.has_started()
               ? absl::StrCat("took ", Duration(Seconds(status.finished()) - Seconds(status.started())))
               : "never ran";
  } else if (step > 0) {
    left = absl::StrCat(Duration((steps - status.step()) * step), " left");
  }
  Markup checkpoint = Text("none");
  Markup checkpoint_note = Text(status.job().has_checkpoint() ? "not written yet" : "no section in the job");
  if (status.checkpoint_step() > 0)
    checkpoint = Text(absl::StrCat("step ", Grouped(status.checkpoint_step())));
  if (status.has_checkpoint_time()) checkpoint_note = Ago(status.checkpoint_time(), context.now);
  if (!status.checkpoint_trouble().empty()) checkpoint_note = Badge("bad", "the last one failed");
  const double mfu = MeasuredMfu(status);
  return absl::StrCat(
      "<dl class=\"tiles eight\">\n",
      Tile("Step", Text(absl::StrCat(Grouped(status.step()), " of ", Grouped(steps))), Text(left),
           Meter(steps > 0 ? static_cast<double>(status.step()) / steps : 0, "run")),
      Tile("Loss", Text(status.has_loss() ? Short(status.loss()) : "-"), Text("mean over targets")),
      Tile("Tokens/s", figure(status.tokens_per_second(), Grouped(std::llround(status.tokens_per_second()))),
           OfPlan(plan.tokens_per_second(), Grouped(std::llround(plan.tokens_per_second())))),
      Tile("Step time", figure(step, Duration(step)),
           OfPlan(plan.step_seconds(), Duration(plan.step_seconds()))),
      Tile("MFU", figure(mfu, Percent(mfu)), OfPlan(plan.mfu(), Percent(plan.mfu()))),
      Tile("Peak memory", figure(peak, Bytes(peak)),
           OfPlan(static_cast<double>(plan.peak_bytes()), Bytes(static_cast<double>(plan.peak_bytes())))),
      Tile("Checkpoint", checkpoint, checkpoint_note),
      Tile("Restarts", Text(absl::StrCat(status.restarts())),
           Text(absl::StrCat(status.fruitless_restarts(), " without progress"))),
      "</dl>\n");
}

std::string Ranks(const v1::JobStatus& job) {
  if (job.ranks().empty())
    return Section("ranks", "Ranks", Empty("No attempt has been made yet: the job waits for workers."));
  HtmlTable table("Ranks of the last attempt", {{"Rank", true},
                                                {"Worker"},
                                                {"State"},
                                                {"Step", true},
                                                {"Peak memory", true},
                                                {"Sent", true},
                                                {"Computing / median", true},
                                                {"Runs / ended"}});
  for (const v1::RankStatus& rank : job.ranks()) {
    if (rank.rank() == kRanksShown) break;
    const bool gone = rank.state() == v1::RankStatus::GONE;
    table.Row({Text(absl::StrCat(rank.rank())), Link(gone ? "" : rank.metrics_url(), rank.worker()),
               Badge(gone                                      ? "off"
                     : rank.state() == v1::RankStatus::STARTED ? "run"
                                                               : "wait",
                     v1::RankStatus::State_Name(rank.state())),
               Text(Grouped(rank.step())), Text(Bytes(static_cast<double>(rank.peak_bytes()))),
               Text(Bytes(static_cast<double>(rank.sent_bytes()))),
               Text(rank.straggler_ratio() > 0 ? absl::StrFormat("%.2f", rank.straggler_ratio()) : "-"),
               Text(rank.end().empty() ? rank.description() : rank.end())});
  }
  const size_t all = static_cast<size_t>(job.ranks_size());
  return Section("ranks", "Ranks", table.Html(all - table.rows(), "metpctl describe " + job.id()),
                 absl::StrCat("attempt ", Code(job.attempt()).html));
}

std::string Events(const JobTable::View& job, const PageContext& context) {
  HtmlTable table("Events, latest first", {{"When"}, {"What"}});
  for (auto event = job.events.rbegin(); event != job.events.rend() && table.rows() < kEventsShown; ++event)
    table.Row({Ago(event->time(), context.now), Text(event->text())});
  return Section("events", "Events",
                 table.Html(job.events.size() - table.rows(), "metpctl events " + job.status.id()),
                 "latest first");
}

}  // namespace

absl::StatusOr<std::string> JobPage(const PageContext& context, const std::string& id) {
  METP_ASSIGN_OR_RETURN(const JobTable::View job, context.jobs.ReadView(id, kCurvePoints));
  const v1::JobStatus& status = job.status;
  const std::string lead =
      absl::StrCat("<div class=\"lead\"><h1>", Escape(status.id()), "</h1>", StateBadge(status),
                   status.reason().empty() ? "" : "<p>", Escape(status.reason()),
                   status.reason().empty() ? "" : "</p>", "</div>\n");
  return Page({.title = status.id(),
               .coordinator = context.coordinator,
               .up = UpSince(context),
               .path = "/jobs/" + status.id(),
               .refreshes = !IsTerminal(status.state()),
               .paused = context.paused},
              absl::StrCat(StoreAlert(context), lead, Tiles(job, context), "<div class=\"two\">",
                           LossSection(job), SpeedSection(job), "</div>\n", PlanSection(job),
                           MemorySection(job, Capacity(status, context.workers)), OverlapSection(job),
                           Ranks(status), Events(job, context)));
}

std::string NoJobPage(const PageContext& context, const std::string& id) {
  return Page(
      {.title = "No such job",
       .coordinator = context.coordinator,
       .up = UpSince(context),
       .path = "/jobs/" + id,
       .refreshes = false},
      absl::StrCat("<div class=\"lead\"><h1>No job ", Escape(id),
                   "</h1><p>It may have ended long ago: the oldest "
                   "ended jobs are not kept. <a href=\"/\">The cluster's page</a> lists those that are "
                   "there.</p></div>\n"));
}

}  // namespace metp
