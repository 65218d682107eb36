#include "server/http/status_page.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/support/figures.h"
#include "server/http/html.h"
#include "server/http/svg_chart.h"
#include "server/http/workers_section.h"
#include "server/worker_list.h"
#include "worker/model/plan.h"
#include "worker/model/schedule.h"

namespace metp {
namespace {

constexpr size_t kJobsShown = 50;  // of each kind

int At(const JobTable::Overview& overview, v1::JobStatus::State state) {
  const auto found = overview.count.find(state);
  return found == overview.count.end() ? 0 : found->second;
}

size_t Beyond(int all, size_t shown) { return static_cast<size_t>(all) - std::min<size_t>(all, shown); }

std::string Whole(double value) { return Grouped(std::llround(value)); }

Markup Progress(const v1::JobStatus& job) {
  const int steps = job.job().train().steps();
  return {absl::StrCat("<span class=\"nowrap\">", Grouped(job.step()), " of ", Grouped(steps), "</span>",
                       Meter(steps > 0 ? static_cast<double>(job.step()) / steps : 0, "run").html)};
}

Markup Loss(const v1::JobStatus& job, const std::vector<double>& losses) {
  if (!job.has_loss()) return Text("-");
  return {
      absl::StrCat(Short(job.loss()), Sparkline(losses, absl::StrCat("loss over ", job.step(), " steps")))};
}

Markup Speed(const v1::JobStatus& job) {
  const double planned = job.prediction().tokens_per_second();
  if (job.tokens_per_second() <= 0) return Text("-");
  std::string html = Whole(job.tokens_per_second());
  if (planned > 0)
    absl::StrAppendFormat(&html, " <span class=\"dim\">%.0f %% of plan</span>",
                          100 * job.tokens_per_second() / planned);
  return {html};
}

Markup Peak(const v1::JobStatus& job) {
  const double peak = job.ranks().empty() ? 0 : static_cast<double>(job.ranks(0).peak_bytes());
  if (peak <= 0) return Text("-");
  std::string html = Bytes(peak);
  if (job.prediction().peak_bytes() > 0)
    absl::StrAppend(&html, " <span class=\"dim\">plan ",
                    Bytes(static_cast<double>(job.prediction().peak_bytes())), "</span>");
  return {html};
}

/// Until the last step, at the present speed.
Markup Left(const v1::JobStatus& job, const StepRate& rate) {
  const int steps = LastStep(job.job().train()) - job.step();
  if (rate.steps == 0 || steps <= 0) return Text("-");
  return Text(Duration(steps * rate.seconds / rate.steps));
}

std::string Running(const JobTable::Overview& overview) {
  const int all = At(overview, v1::JobStatus::STARTING) + At(overview, v1::JobStatus::RUNNING);
  if (all == 0) {
    return Section("running", "Running",
                   Empty("No job is running. Submit one:", "metpctl submit -f job.yaml --watch"));
  }
  HtmlTable table("Running jobs", {{"Job"},
                                   {"State"},
                                   {"Ranks", true},
                                   {"Step", true},
                                   {"Loss", true},
                                   {"Tokens/s", true},
                                   {"Peak memory", true},
                                   {"Left", true},
                                   {"Note"}});
  for (const v1::JobStatus& job : overview.active) {
    const JobTable::Overview::Trend& trend = overview.trends.at(job.id());
    table.Row({JobLink(job.id()),
               {StateBadge(job)},
               Text(absl::StrCat(RanksOf(job.plan()))),
               Progress(job),
               Loss(job, trend.losses),
               Speed(job),
               Peak(job),
               Left(job, trend.rate),
               Text(job.reason())});
  }
  return Section("running", "Running", table.Html(Beyond(all, overview.active.size()), "metpctl get"),
                 absl::StrCat(Grouped(all), all == 1 ? " job" : " jobs"));
}

std::string Queue(const JobTable::Overview& overview, const PageContext& context) {
  const int all = At(overview, v1::JobStatus::QUEUED);
  if (all == 0) return Section("queue", "Queue", Empty("Nothing waits."));
  HtmlTable table(
      "Queue",
      {{"Job"}, {"Ranks", true}, {"Device"}, {"Priority", true}, {"Submitted"}, {"It waits because"}});
  for (const v1::JobStatus& job : overview.queued) {
    table.Row({JobLink(job.id()), Text(absl::StrCat(RanksOf(job.plan()))),
               Text(KindOf(job.plan()) == v1::JobSpec::DEVICE_GPU ? "GPU" : "CPU"),
               Text(absl::StrCat(job.job().priority())), Ago(job.submitted(), context.now),
               Text(job.reason())});
  }
  return Section("queue", "Queue", table.Html(Beyond(all, overview.queued.size()), "metpctl get"),
                 absl::StrCat(Grouped(all), all == 1 ? " job" : " jobs", ", first come first"));
}

std::string Finished(const JobTable::Overview& overview, const PageContext& context) {
  const int all = At(overview, v1::JobStatus::SUCCEEDED) + At(overview, v1::JobStatus::FAILED) +
                  At(overview, v1::JobStatus::CANCELLED);
  if (all == 0) return Section("ended", "Ended", Empty("No job has ended yet."));
  HtmlTable table("Ended jobs", {{"Job"},
                                 {"State"},
                                 {"Ranks", true},
                                 {"Step", true},
                                 {"Loss", true},
                                 {"Tokens/s", true},
                                 {"Took", true},
                                 {"Ended"},
                                 {"How"}});
  for (const v1::JobStatus& job : overview.finished) {
    const double took = job.has_started() ? Seconds(job.finished()) - Seconds(job.started()) : 0;
    table.Row({JobLink(job.id()),
               {StateBadge(job)},
               Text(absl::StrCat(RanksOf(job.plan()))),
               Text(absl::StrCat(Grouped(job.step()), " of ", Grouped(job.job().train().steps()))),
               Text(job.has_loss() ? Short(job.loss()) : "-"),
               Text(job.tokens_per_second() > 0 ? Whole(job.tokens_per_second()) : "-"),
               Text(took > 0 ? Duration(took) : "-"),
               Ago(job.finished(), context.now),
               Text(job.reason())});
  }
  return Section("ended", "Ended", table.Html(Beyond(all, overview.finished.size()), "metpctl get"),
                 absl::StrCat(Grouped(all), all == 1 ? " job is kept" : " jobs are kept"));
}

std::string Tiles(const JobTable::Overview& overview, const Fleet& fleet) {
  const auto n = [](int number) { return Text(Grouped(number)); };
  const auto part = [&fleet](int count) {
    return fleet.all == 0 ? 0.0 : static_cast<double>(count) / fleet.all;
  };
  const int running = At(overview, v1::JobStatus::RUNNING), starting = At(overview, v1::JobStatus::STARTING);
  return absl::StrCat(
      "<dl class=\"tiles\">\n",
      Tile("Workers ready", Text(absl::StrCat(Grouped(fleet.ready), " of ", Grouped(fleet.all))),
           Text(absl::StrCat(fleet.suspect, " suspect, ", fleet.lost, " lost")),
           Meter(part(fleet.ready), fleet.ready == fleet.all ? "ok" : "warn")),
      Tile("Workers busy", Text(absl::StrCat(Grouped(fleet.busy), " of ", Grouped(fleet.all))),
           Text(absl::StrCat(fleet.drained, " drained")), Meter(part(fleet.busy), "run")),
      Tile("Jobs running", n(running), Text(absl::StrCat(Grouped(starting), " starting"))),
      Tile("Jobs queued", n(At(overview, v1::JobStatus::QUEUED)), Text("wait for workers")),
      Tile("Succeeded", n(At(overview, v1::JobStatus::SUCCEEDED)), Text("of those that are kept")),
      Tile("Failed", n(At(overview, v1::JobStatus::FAILED)),
           Text(absl::StrCat(Grouped(At(overview, v1::JobStatus::CANCELLED)), " cancelled"))),
      "</dl>\n");
}

}  // namespace

std::string StateBadge(const v1::JobStatus& job) {
  const std::string word = v1::JobStatus::State_Name(job.state());
  if (job.stopping()) return Badge("warn", word + ", ending").html;
  switch (job.state()) {
    case v1::JobStatus::SUCCEEDED:
      return Badge("ok", word).html;
    case v1::JobStatus::RUNNING:
    case v1::JobStatus::STARTING:
      return Badge("run", word).html;
    case v1::JobStatus::FAILED:
      return Badge("bad", word).html;
    case v1::JobStatus::QUEUED:
      return Badge("wait", word).html;
    default:
      return Badge("off", word).html;
  }
}

std::string UpSince(const PageContext& context) {
  return absl::StrCat(" <span title=\"since ", Utc(Seconds(context.started)), "\">up ",
                      Duration(std::max(0.0, std::round(Seconds(context.now) - Seconds(context.started)))),
                      "</span>");
}

std::string StoreAlert(const PageContext& context) {
  if (context.store_writable) return "";
  return absl::StrCat(
      "<p class=\"alert\" role=\"alert\">", Badge("bad", "The store takes no changes.").html,
      " Nothing that workers report is acknowledged, and no job can be submitted. Look at the disk of "
      "the coordinator's --state folder.</p>\n");
}

std::string StatusPage(const PageContext& context) {
  const JobTable::Overview overview = context.jobs.ReadOverview(kJobsShown);
  const std::vector<v1::WorkerStatus> workers = WorkersWithRanks(context.workers, context.jobs);
  return Page(
      {.title = "Cluster",
       .coordinator = context.coordinator,
       .up = UpSince(context),
       .path = "/",
       .paused = context.paused},
      absl::StrCat(StoreAlert(context), "<div class=\"lead\"><h1>Cluster</h1></div>\n",
                   Tiles(overview, CountWorkers(workers)), Running(overview), Queue(overview, context),
                   WorkersSection(workers, context.coordinator), Finished(overview, context)));
}

}  // namespace metp
