// metpctl workers: who is there and what they hold.

#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/api.h"
#include "client/command.h"
#include "client/format.h"
#include "client/json.h"

namespace metp {
namespace {

std::string Detail(const v1::WorkerStatus& worker) {
  if (!worker.drained()) return worker.detail();
  return absl::StrCat("drained", worker.drain_reason().empty() ? "" : ": ", worker.drain_reason(),
                      worker.detail().empty() ? "" : "; ", worker.detail());
}

int Run(const Globals& globals, const std::string& output) {
  Api api(globals.coordinator);
  const absl::StatusOr<std::vector<v1::WorkerStatus>> workers = api.ListWorkers();
  if (!workers.ok()) return Fail(workers.status());
  if (output == "json") {
    v1::ListWorkersResponse all;
    for (const v1::WorkerStatus& worker : *workers) *all.add_workers() = worker;
    std::printf("%s\n", ToJson(all).c_str());
    return kExitOk;
  }
  if (workers->empty()) {
    std::fprintf(stderr, "no workers; start some with: metp-worker --coordinator %s\n",
                 globals.coordinator.c_str());
    return kExitOk;
  }
  std::vector<std::vector<std::string>> rows = {
      {"WORKER", "STATE", "DEVICE", "THREADS", "MEMORY", "ADDRESS", "HOLDS", "METRICS", "DETAIL"}};
  for (const v1::WorkerStatus& worker : *workers) {
    rows.push_back({worker.name(), v1::WorkerStatus::State_Name(worker.state()), worker.device(),
                    absl::StrCat(worker.threads()), Bytes(static_cast<double>(worker.memory_bytes())),
                    worker.address(),
                    worker.job().empty() ? "-" : absl::StrCat(worker.job(), " rank ", worker.rank()),
                    worker.metrics_url(), Detail(worker)});
  }
  std::fputs(Table(rows, {3, 4}).c_str(), stdout);
  return kExitOk;
}

}  // namespace

void AddWorkers(CLI::App& app, Globals& globals) {
  auto output = std::make_shared<std::string>("text");
  CLI::App* verb = app.add_subcommand("workers", "List workers and what they hold");
  AddOutput(verb, *output);
  verb->callback([&globals, output] { globals.run = [&globals, output] { return Run(globals, *output); }; });
}

}  // namespace metp
