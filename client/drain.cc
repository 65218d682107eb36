// metpctl drain, metpctl undrain: a worker takes no new ranks, or takes them again.

#include <memory>

#include "client/api.h"
#include "client/command.h"

namespace metp {
namespace {

int Run(const Globals& globals, const v1::DrainWorkerRequest& request) {
  Api api(globals.coordinator);
  const absl::StatusOr<v1::WorkerStatus> worker = api.DrainWorker(request);
  if (!worker.ok()) return Fail(worker.status());
  std::printf("%s %s\n", worker->name().c_str(), worker->drained() ? "drained" : "takes ranks");
  if (worker->drained() && !worker->job().empty()) {
    const absl::StatusOr<v1::JobStatus> job = api.GetJob(worker->job());
    const bool saves = !job.ok() || job->job().has_checkpoint();
    std::fprintf(stderr, "it still holds rank %d of %s%s\n", worker->rank(), worker->job().c_str(),
                 !request.evict() ? "; with --evict that job would leave it"
                 : saves          ? ", which ends its step, writes a checkpoint and goes back to the queue"
                         : ", which has no checkpoint section: it goes back to the queue and begins again");
  }
  return kExitOk;
}

CLI::App* Add(CLI::App& app, Globals& globals, const char* name, const char* what,
              const std::shared_ptr<v1::DrainWorkerRequest>& request) {
  CLI::App* verb = app.add_subcommand(name, what);
  verb->add_option_function<std::string>(
          "worker", [request](const std::string& worker) { request->set_worker(worker); }, "its name")
      ->required();
  verb->callback(
      [&globals, request] { globals.run = [&globals, request] { return Run(globals, *request); }; });
  return verb;
}

}  // namespace

void AddDrain(CLI::App& app, Globals& globals) {
  const auto drain = std::make_shared<v1::DrainWorkerRequest>();
  CLI::App* verb =
      Add(app, globals, "drain", "Let a worker take no new ranks, also after a restart of it", drain);
  verb->add_flag_callback(
      "--evict", [drain] { drain->set_evict(true); },
      "its job leaves now: it ends its step, writes a checkpoint and goes back to the queue");
  verb->add_option_function<std::string>(
      "--reason", [drain](const std::string& reason) { drain->set_reason(reason); }, "shown with the worker");

  const auto undrain = std::make_shared<v1::DrainWorkerRequest>();
  undrain->set_undrain(true);
  Add(app, globals, "undrain", "Let a drained worker take ranks again", undrain);
}

}  // namespace metp
