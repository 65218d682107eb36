#include "server/http/workers_section.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/support/figures.h"
#include "server/http/html.h"

namespace metp {
namespace {

constexpr size_t kWorkersShown = 100;  // as rows
constexpr size_t kMapFrom = 33;        // so many workers get a map
constexpr size_t kMapCells = 2000;     // of it
constexpr size_t kDevicesShown = 12;   // models

std::string Memory(int64_t bytes) { return bytes > 0 ? Bytes(static_cast<double>(bytes)) : "-"; }

/// What most needs to be seen comes first.
int Trouble(const v1::WorkerStatus& worker) {
  if (worker.state() == v1::WorkerStatus::LOST) return 0;
  if (worker.state() == v1::WorkerStatus::SUSPECT) return 1;
  return worker.drained() || !worker.detail().empty() ? 2 : 3;
}

std::string Kind(const v1::WorkerStatus& worker) {
  static constexpr const char* kKinds[] = {"bad", "warn", "wait", "ok"};
  return kKinds[Trouble(worker)];
}

Markup State(const v1::WorkerStatus& worker) {
  std::string word = v1::WorkerStatus::State_Name(worker.state());
  if (worker.drained()) word += ", drained";
  Markup state = Badge(Kind(worker), word);
  for (const std::string& why : {worker.detail(), worker.drain_reason()}) {
    if (!why.empty()) absl::StrAppend(&state.html, " <span class=\"dim\">", Escape(why), "</span>");
  }
  return state;
}

Markup Holds(const v1::WorkerStatus& worker) {
  if (worker.job().empty()) return {"<span class=\"dim\">free</span>"};
  return {absl::StrCat("<span class=\"nowrap\">", JobLink(worker.job()).html, " rank ", worker.rank(),
                       "</span>")};
}

std::string Devices(const std::vector<v1::WorkerStatus>& workers) {
  struct Model {
    int count = 0, ready = 0, busy = 0;
    int64_t memory = 0;
  };
  std::map<std::string, Model> models;
  for (const v1::WorkerStatus& worker : workers) {
    Model& model = models[DeviceModel(worker)];
    ++model.count;
    model.ready += worker.state() == v1::WorkerStatus::READY && !worker.drained() ? 1 : 0;
    model.busy += worker.job().empty() ? 0 : 1;
    model.memory += worker.memory_bytes();
  }
  HtmlTable table("Devices by model",
                  {{"Device"}, {"Workers", true}, {"Take ranks", true}, {"Busy", true}, {"Memory", true}});
  for (const auto& [name, model] : models) {
    if (table.rows() == kDevicesShown) break;
    table.Row({Text(name), Text(Grouped(model.count)), Text(Grouped(model.ready)), Text(Grouped(model.busy)),
               Text(Memory(model.memory))});
  }
  return Section("devices", "Devices", table.Html(models.size() - table.rows()));
}

/// One cell for each worker, in their own order.
std::string Map(const std::vector<v1::WorkerStatus>& workers) {
  constexpr int kPitch = 14, kColumns = 88;
  const size_t cells = std::min(workers.size(), kMapCells);
  const int rows = static_cast<int>((cells + kColumns - 1) / kColumns);
  std::string svg =
      absl::StrCat("<svg class=\"fleet\" viewBox=\"0 0 ", kPitch * kColumns, " ", kPitch * rows,
                   "\" role=\"img\"><title>Map of the workers</title><desc>One cell for each worker: "
                   "filled while it holds a rank, an outline while it is free; the table below has "
                   "their states.</desc>\n");
  for (size_t i = 0; i < cells; ++i) {
    const v1::WorkerStatus& worker = workers[i];
    const int column = static_cast<int>(i) % kColumns, row = static_cast<int>(i) / kColumns;
    const std::string color = "var(--" + Kind(worker) + ")";
    absl::StrAppend(
        &svg, "<rect x=\"", column * kPitch + 2, "\" y=\"", row * kPitch + 2,
        "\" width=\"10\" height=\"10\" rx=\"2\" stroke=\"", color, "\" fill=\"",
        worker.job().empty() ? "transparent" : color, "\"><title>", Escape(worker.name()), " ",
        v1::WorkerStatus::State_Name(worker.state()), worker.drained() ? ", drained" : "",
        worker.job().empty() ? ", free" : Escape(absl::StrCat(", ", worker.job(), " rank ", worker.rank())),
        "</title></rect>");
    // Not by colour alone: those that are not simply ready are struck through.
    if (Trouble(worker) < 3) {
      absl::StrAppend(
          &svg, "<path stroke=\"", worker.job().empty() ? color : "var(--surface)", "\" d=\"M",
          column * kPitch + 3, " ", row * kPitch + 11, "l8 -8",
          Trouble(worker) == 0 ? absl::StrCat("M", column * kPitch + 3, " ", row * kPitch + 3, "l8 8") : "",
          "\"/>");
    }
  }
  return absl::StrCat(svg, "</svg>\n<ul class=\"legend\"><li>", Badge("ok", "ready").html, "</li><li>",
                      Badge("wait", "drained or not free yet").html, "</li><li>",
                      Badge("warn", "suspect").html, "</li><li>", Badge("bad", "lost").html,
                      "</li><li>filled: holds a rank</li></ul>\n");
}

}  // namespace

Fleet CountWorkers(const std::vector<v1::WorkerStatus>& workers) {
  Fleet fleet;
  for (const v1::WorkerStatus& worker : workers) {
    ++fleet.all;
    fleet.ready += worker.state() == v1::WorkerStatus::READY ? 1 : 0;
    fleet.suspect += worker.state() == v1::WorkerStatus::SUSPECT ? 1 : 0;
    fleet.lost += worker.state() == v1::WorkerStatus::LOST ? 1 : 0;
    fleet.drained += worker.drained() ? 1 : 0;
    fleet.busy += worker.job().empty() ? 0 : 1;
  }
  return fleet;
}

std::string DeviceModel(const v1::WorkerStatus& worker) {
  const std::string& device = worker.device();
  return device.empty() ? "not said" : device.substr(0, device.find(" GPU-"));
}

std::string WorkersSection(const std::vector<v1::WorkerStatus>& workers, const std::string& coordinator) {
  if (workers.empty()) {
    return Section(
        "workers", "Workers",
        Empty("No workers yet. Start one:", absl::StrCat("metp-worker --coordinator ", coordinator)));
  }
  std::vector<const v1::WorkerStatus*> order;
  for (const v1::WorkerStatus& worker : workers) order.push_back(&worker);
  if (workers.size() > kWorkersShown) {
    std::stable_sort(order.begin(), order.end(),
                     [](const auto* a, const auto* b) { return Trouble(*a) < Trouble(*b); });
  }
  HtmlTable table("Workers", {{"Worker"},
                              {"State"},
                              {"Holds"},
                              {"Device"},
                              {"Memory", true},
                              {"Threads", true},
                              {"Node"},
                              {"Heard", true},
                              {"Address"}});
  for (const v1::WorkerStatus* worker : order) {
    if (table.rows() == kWorkersShown) break;
    table.Row({Link(worker->metrics_url(), worker->name()), State(*worker), Holds(*worker),
               Text(worker->device()), Text(Memory(worker->memory_bytes())),
               Text(absl::StrCat(worker->threads())), Text(worker->node()),
               Text(absl::StrFormat("%.1f s", worker->silent_seconds())), Text(worker->address())});
  }
  const Fleet fleet = CountWorkers(workers);
  return Section("workers", "Workers",
                 absl::StrCat(workers.size() < kMapFrom ? "" : Map(workers),
                              table.Html(workers.size() - table.rows(), "metpctl workers")),
                 absl::StrCat(Grouped(fleet.ready), " ready, ", fleet.suspect, " suspect, ", fleet.lost,
                              " lost, ", fleet.drained, " drained",
                              workers.size() > kWorkersShown ? "; those in trouble first" : "")) +
         Devices(workers);
}

}  // namespace metp
