// metpctl submit: reads and checks a job file, sends it.

#include <memory>
#include <vector>

#include "client/api.h"
#include "client/command.h"
#include "client/job_file_error.h"
#include "client/submitting.h"
#include "proto/support/job_file.h"
#include "worker/data/dataset.h"

namespace metp {
namespace {

struct Options {
  std::string file, output = "text";
  std::vector<std::string> set;
  bool watch = false;
};

/// A coordinator on this machine has its workers here too, as a rule: then the data can be looked at before
/// anything is sent.
bool OnThisMachine(const std::string& coordinator) {
  return coordinator.rfind("127.", 0) == 0 || coordinator.rfind("localhost:", 0) == 0 ||
         coordinator.rfind("[::1]:", 0) == 0;
}

int Run(const Globals& globals, const Options& options) {
  const absl::StatusOr<v1::JobSpec> job = LoadJobFile(options.file, options.set);
  if (!job.ok()) return FailInJobFile(options.file, options.set, job.status());
  if (OnThisMachine(globals.coordinator)) {
    const absl::Status data = Dataset::Open(*job).status();
    if (!data.ok()) {
      return FailInJobFile(options.file, options.set,
                           absl::InvalidArgumentError("data.source: " + std::string(data.message())));
    }
  }
  Api api(globals.coordinator, std::chrono::seconds(globals.patience_seconds));
  const absl::StatusOr<v1::JobStatus> status = api.Submit(*job);
  if (absl::IsFailedPrecondition(status.status()) || absl::IsInvalidArgument(status.status()) ||
      absl::IsResourceExhausted(status.status())) {
    return FailInJobFile(options.file, options.set, status.status());
  }
  if (!status.ok()) return Fail(status.status());
  return Submitted(api, *status, options.watch, options.output == "json");
}

}  // namespace

void AddSubmit(CLI::App& app, Globals& globals) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("submit", "Send a job; prints its id");
  verb->add_option("-f,--file", options->file, "the job file (YAML)")->required();
  verb->add_option("--set", options->set, "KEY=VALUE over the file's, e.g. train.steps=10; may be repeated")
      ->allow_extra_args(false);
  verb->add_flag("-w,--watch", options->watch, "follow it to its end");
  AddOutput(verb, options->output);
  verb->callback(
      [&globals, options] { globals.run = [&globals, options] { return Run(globals, *options); }; });
}

}  // namespace metp
