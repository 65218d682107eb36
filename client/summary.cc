#include "client/summary.h"

#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/format.h"
#include "google/protobuf/util/time_util.h"
#include "worker/model/plan.h"

namespace metp {
namespace {

using Rows = std::vector<std::vector<std::string>>;

std::vector<size_t> AllFrom(size_t first, size_t count) {
  std::vector<size_t> columns;
  for (size_t i = first; i < count; ++i) columns.push_back(i);
  return columns;
}

std::string Elapsed(const v1::JobStatus& status) {
  if (!status.has_finished()) return "";
  const auto& from = status.has_started() ? status.started() : status.submitted();
  const auto elapsed = status.finished() - from;
  return absl::StrCat(" (", Duration(google::protobuf::util::TimeUtil::DurationToMilliseconds(elapsed) / 1e3),
                      ")");
}

std::string Loss(const std::vector<v1::StepPoint>& steps, const CurveStyle& style) {
  std::vector<CurvePoint> points;
  for (const v1::StepPoint& step : steps) points.push_back({static_cast<double>(step.step()), step.loss()});
  const v1::StepPoint &first = steps.front(), &last = steps.back();
  std::string out = absl::StrCat("Loss: ", Short(first.loss()), " at step ", first.step(), ", ",
                                 Short(last.loss()), " at step ", last.step(), "\n");
  if (steps.size() > 1) absl::StrAppend(&out, "\n", DrawCurve(points, style));
  return out;
}

std::string Speed(const v1::JobStatus& status, const std::vector<v1::StepPoint>& steps) {
  double seconds = 0, tokens = 0, flops = 0, sgemm = 0;
  for (const v1::StepPoint& step : steps) {
    seconds += step.step_seconds();
    tokens += static_cast<double>(step.tokens());
    flops += step.model_flops();
  }
  if (seconds <= 0) return "";
  std::string out = absl::StrCat("Speed: ", Grouped(static_cast<int64_t>(tokens / seconds)), " tokens/s (",
                                 Grouped(static_cast<int64_t>(tokens)), " tokens in ", steps.size(),
                                 " steps of ", Duration(seconds / static_cast<double>(steps.size())), ")");
  if (flops > 0)
    absl::StrAppend(&out, ", ", Scaled(flops / seconds, "FLOP/s"), " of the model's own arithmetic");
  for (const v1::RankStatus& rank : status.ranks()) sgemm += rank.sgemm_flops_per_second();
  if (flops > 0 && sgemm > 0) {
    absl::StrAppend(&out, ", ", Percent(flops / seconds / sgemm), " of the measured matrix product rate");
  }
  return out + "\n";
}

std::string Metrics(const v1::JobStatus& status, const std::string& http_url) {
  std::string out = "Metrics:\n";
  if (!http_url.empty())
    absl::StrAppend(&out, "  coordinator  ", http_url, "/metrics (status page: ", http_url, "/)\n");
  for (const v1::RankStatus& rank : status.ranks()) {
    absl::StrAppend(&out, "  rank ", rank.rank(), "       ", rank.metrics_url(), "\n");
  }
  return out;
}

}  // namespace

std::string RankTable(const v1::JobStatus& status) {
  if (status.ranks().empty()) return "";
  Rows rows = {{"RANK", "WORKER", "STATE", "PID", "STEP", "PEAK", "SENT", "RUNS / ENDED"}};
  for (const v1::RankStatus& rank : status.ranks()) {
    rows.push_back({absl::StrCat(rank.rank()), rank.worker(), v1::RankStatus::State_Name(rank.state()),
                    absl::StrCat(rank.pid()), absl::StrCat(rank.step()),
                    Bytes(static_cast<double>(rank.peak_bytes())),
                    Bytes(static_cast<double>(rank.sent_bytes())),
                    rank.end().empty() ? rank.description() : rank.end()});
  }
  return Table(rows, {0, 3, 4, 5, 6});
}

std::string MemoryTable(const v1::JobStatus& status) {
  std::set<std::string> categories;
  for (const v1::RankStatus& rank : status.ranks()) {
    for (const auto& [category, bytes] : rank.peak_bytes_by_category()) {
      if (bytes > 0) categories.insert(category);
    }
  }
  if (categories.empty()) return "";
  Rows rows = {{"RANK", "WORKER", "PEAK"}};
  rows[0].insert(rows[0].end(), categories.begin(), categories.end());
  for (const v1::RankStatus& rank : status.ranks()) {
    rows.push_back({absl::StrCat(rank.rank()), rank.worker(), Bytes(static_cast<double>(rank.peak_bytes()))});
    for (const std::string& category : categories) {
      const auto found = rank.peak_bytes_by_category().find(category);
      rows.back().push_back(
          found == rank.peak_bytes_by_category().end() ? "-" : Bytes(static_cast<double>(found->second)));
    }
  }
  std::vector<size_t> right = AllFrom(2, rows[0].size());
  right.push_back(0);
  return Table(rows, right);
}

namespace {

/// One line about host memory, where something is offloaded to it.
std::string HostText(const v1::JobStatus& status) {
  double copying = 0, updating = 0, exposed = 0;
  for (const v1::RankStatus& rank : status.ranks()) {
    copying += rank.host().copy_seconds();
    updating += rank.host().update_seconds();
    exposed += rank.host().exposed_seconds();
  }
  if (copying + updating == 0) return "";
  return absl::StrCat("Host memory: copies ", Duration(copying), ", optimizer ", Duration(updating),
                      "; waited for ", Duration(exposed), ".\n");
}

}  // namespace

std::string OverlapTable(const v1::JobStatus& status) {
  std::map<std::string, v1::PassTimes> passes;
  v1::PassTimes all;
  const auto add = [](v1::PassTimes& to, const v1::PassTimes& from) {
    to.set_compute_seconds(to.compute_seconds() + from.compute_seconds());
    to.set_communication_seconds(to.communication_seconds() + from.communication_seconds());
    to.set_exposed_seconds(to.exposed_seconds() + from.exposed_seconds());
    to.set_skew_seconds(to.skew_seconds() + from.skew_seconds());
  };
  for (const v1::RankStatus& rank : status.ranks()) {
    for (const auto& [name, times] : rank.passes()) {
      add(passes[name], times);
      add(all, times);
    }
  }
  if (passes.empty()) return "";
  Rows rows = {{"PASS", "COMPUTE", "COMMUNICATION", "EXPOSED", "SKEW", "OVERLAP"}};
  const auto row = [&rows](const std::string& name, const v1::PassTimes& times) {
    const double moving = times.communication_seconds();
    rows.push_back({name, Duration(times.compute_seconds()), Duration(moving),
                    Duration(times.exposed_seconds()), Duration(times.skew_seconds()),
                    moving > 0 ? Percent(1 - times.exposed_seconds() / moving) : "-"});
  };
  for (const auto& [name, times] : passes) row(name, times);
  row("all passes", all);
  return Table(rows, AllFrom(1, rows[0].size())) + HostText(status);
}

std::string PlanLines(const v1::JobStatus& status) {
  const v1::Plan& plan = status.plan();
  const v1::Prediction& p = status.prediction();
  std::string out =
      absl::StrCat(RanksOf(plan), RanksOf(plan) == 1 ? " rank, " : " ranks, ", PlanSettings(plan), "\n");
  if (status.has_prediction()) {
    absl::StrAppend(&out, "expected (simulated): ", Bytes(static_cast<double>(p.peak_bytes())), " of ",
                    Bytes(static_cast<double>(p.usable_bytes())), " a worker");
    if (p.host_peak_bytes() > 0)
      absl::StrAppend(&out, ", ", Bytes(static_cast<double>(p.host_peak_bytes())), " of host memory");
    absl::StrAppend(&out, "; ", Duration(p.step_seconds()), " a step, ",
                    Grouped(static_cast<int64_t>(p.tokens_per_second())), " tokens/s");
    if (plan.degree() > 1) {
      absl::StrAppend(&out, "; communication ", RingsOf(plan) > 1 ? "in a ring " : "",
                      p.full_overlap() ? "hides fully" : "does not hide fully behind computation");
    }
    for (const v1::PassPrediction& pass : p.passes()) {
      if (pass.pass() == "replicas")
        absl::StrAppend(&out, "; the exchange between rings takes ", Duration(pass.exposed_seconds()));
    }
    absl::StrAppend(&out, "\n");
  }
  for (const std::string& note : plan.notes()) absl::StrAppend(&out, note, "\n");
  return out;
}

std::string Summary(const v1::JobStatus& status, const std::vector<v1::StepPoint>& steps,
                    const std::string& http_url, const CurveStyle& style) {
  std::string out = absl::StrCat("\nJob ", status.id(), " ", v1::JobStatus::State_Name(status.state()), ": ",
                                 status.reason(), Elapsed(status), "\n");
  if (!steps.empty()) absl::StrAppend(&out, "\n", Loss(steps, style), "\n", Speed(status, steps));
  if (const std::string memory = MemoryTable(status); !memory.empty()) {
    absl::StrAppend(&out, "\nPeak memory of each rank, and what it held then:\n", memory);
  }
  if (const std::string overlap = OverlapTable(status); !overlap.empty()) {
    absl::StrAppend(&out, "\nCommunication hidden behind computation, summed over ranks and steps:\n",
                    overlap);
  }
  absl::StrAppend(&out, "\n", Metrics(status, http_url));
  return out;
}

}  // namespace metp
