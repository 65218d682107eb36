// metpctl resume: a job that has ended before its last step goes on from its newest checkpoint, as a new job.

#include <memory>

#include "absl/strings/str_cat.h"
#include "client/api.h"
#include "client/command.h"
#include "client/submitting.h"

namespace metp {
namespace {

struct Options {
  std::string job, output = "text";
  bool watch = false;
};

/// The job that goes on where `job` ended. FailedPrecondition: there is nothing to go on with.
absl::StatusOr<v1::JobSpec> GoesOn(const v1::JobStatus& job) {
  const auto refuse = [&](const std::string& why) {
    return absl::FailedPreconditionError(absl::StrCat("job ", job.id(), " ", why));
  };
  if (!job.has_finished())
    return refuse(
        absl::StrCat("is ", v1::JobStatus::State_Name(job.state()), "; only one that has ended can go on"));
  if (!job.job().has_checkpoint())
    return refuse("has no checkpoint section, so there is nothing to go on from; submit it again");
  if (job.checkpoint_step() >= job.job().train().steps())
    return refuse(absl::StrCat("has done all ", job.job().train().steps(), " steps"));
  v1::JobSpec next = job.job();
  if (job.saved()) next.mutable_checkpoint()->set_resume("auto");  // otherwise as it began itself
  next.mutable_train()->set_stop_after(next.train().steps());
  return next;
}

int Run(const Globals& globals, const Options& options) {
  Api api(globals.coordinator, std::chrono::seconds(globals.patience_seconds));
  const absl::StatusOr<v1::JobStatus> ended = api.GetJob(options.job);
  if (!ended.ok()) return Fail(ended.status());
  const absl::StatusOr<v1::JobSpec> next = GoesOn(*ended);
  if (!next.ok()) return Fail(next.status());
  const absl::StatusOr<v1::JobStatus> status = api.Submit(*next);
  if (!status.ok()) return Fail(status.status());
  const std::string from = ended->saved() ? "from the newest checkpoint in " + next->checkpoint().directory()
                                          : "where it had begun itself, since it has saved nothing";
  std::fprintf(stderr, "%s goes on as %s, %s\n", ended->id().c_str(), status->id().c_str(), from.c_str());
  return Submitted(api, *status, options.watch, options.output == "json");
}

}  // namespace

void AddResume(CLI::App& app, Globals& globals) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand(
      "resume",
      "Go on with a job that failed, was cancelled or stopped early, from its newest checkpoint: a new job");
  verb->add_option("job", options->job, kJobHelp)->required();
  verb->add_flag("-w,--watch", options->watch, "follow it to its end");
  AddOutput(verb, options->output);
  verb->callback(
      [&globals, options] { globals.run = [&globals, options] { return Run(globals, *options); }; });
}

}  // namespace metp
