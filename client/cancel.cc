// metpctl cancel: ends a job; returns when its processes are gone.

#include <memory>

#include "client/api.h"
#include "client/command.h"
#include "client/interrupt.h"

namespace metp {
namespace {

struct Options {
  std::string job;
  bool no_wait = false;
};

int Run(const Globals& globals, const Options& options) {
  Api api(globals.coordinator);
  absl::StatusOr<v1::JobStatus> job = api.CancelJob(options.job);
  if (!job.ok()) return Fail(job.status());
  if (!options.no_wait && !job->has_finished()) {
    std::fprintf(stderr, "%s\n", job->reason().c_str());
    OnInterrupt interrupt([&api] { api.Interrupt(); });
    const absl::Status status =
        api.WatchJob(job->id(), [&](const v1::WatchJobUpdate& update) { *job = update.status(); });
    if (!status.ok()) return Fail(status);
  }
  std::printf("%s %s%s\n", job->id().c_str(), v1::JobStatus::State_Name(job->state()).c_str(),
              job->stopping() ? " (stopping)" : "");
  const bool cancelled = job->state() == v1::JobStatus::CANCELLED || job->stopping();
  if (!cancelled)
    std::fprintf(stderr, "metpctl: it ended before the cancellation took effect: %s\n",
                 job->reason().c_str());
  return cancelled ? kExitOk : kExitRefused;
}

}  // namespace

void AddCancel(CLI::App& app, Globals& globals) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("cancel", "End a job; waits until its processes are gone");
  verb->add_option("job", options->job, kJobHelp)->required();
  verb->add_flag("--no-wait", options->no_wait, "return when the coordinator has taken note");
  verb->callback(
      [&globals, options] { globals.run = [&globals, options] { return Run(globals, *options); }; });
}

}  // namespace metp
