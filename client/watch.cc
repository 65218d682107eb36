// metpctl watch: a job's progress from its first step to its end, however late one comes.

#include <memory>

#include "client/api.h"
#include "client/command.h"
#include "client/watching.h"

namespace metp {
namespace {

struct Options {
  std::string job, output = "text";
};

int Run(const Globals& globals, const Options& options) {
  Api api(globals.coordinator, std::chrono::seconds(globals.patience_seconds));
  const absl::StatusOr<v1::JobStatus> job =
      api.GetJob(options.job);  // the id that was meant, for all that is said
  if (!job.ok()) return Fail(job.status());
  return Follow(api, job->id(), options.output == "json");
}

}  // namespace

void AddWatch(CLI::App& app, Globals& globals) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("watch", "Follow a job to its end; ^C leaves it running");
  verb->add_option("job", options->job, kJobHelp)->required();
  AddOutput(verb, options->output);
  verb->footer("With -o json: one line per step, then one line {\"status\": ...} when the job has ended.");
  verb->callback(
      [&globals, options] { globals.run = [&globals, options] { return Run(globals, *options); }; });
}

}  // namespace metp
