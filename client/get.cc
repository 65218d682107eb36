// metpctl get: jobs, or one job, in a line each.

#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/api.h"
#include "client/command.h"
#include "client/format.h"
#include "client/json.h"
#include "google/protobuf/util/time_util.h"
#include "worker/model/plan.h"

namespace metp {
namespace {

struct Options {
  std::string job, output = "text";
};

void PrintTable(const std::vector<v1::JobStatus>& jobs) {
  std::vector<std::vector<std::string>> rows = {
      {"JOB", "STATE", "RANKS", "STEP", "LOSS", "TOKENS/S", "SUBMITTED", "REASON"}};
  for (const v1::JobStatus& job : jobs) {
    rows.push_back({job.id(), v1::JobStatus::State_Name(job.state()), absl::StrCat(RanksOf(job.plan())),
                    absl::StrCat(job.step(), "/", job.job().train().steps()),
                    job.has_loss() ? Short(job.loss()) : "-",
                    job.step() > 0 ? Grouped(static_cast<int64_t>(job.tokens_per_second())) : "-",
                    google::protobuf::util::TimeUtil::ToString(job.submitted()), job.reason()});
  }
  std::fputs(Table(rows, {2, 3, 4, 5}).c_str(), stdout);
}

int Run(const Globals& globals, const Options& options) {
  Api api(globals.coordinator);
  if (!options.job.empty()) {
    const absl::StatusOr<v1::JobStatus> job = api.GetJob(options.job);
    if (!job.ok()) return Fail(job.status());
    if (options.output == "json") {
      std::printf("%s\n", ToJson(*job).c_str());
    } else {
      PrintTable({*job});
    }
    return kExitOk;
  }
  const absl::StatusOr<std::vector<v1::JobStatus>> jobs = api.ListJobs();
  if (!jobs.ok()) return Fail(jobs.status());
  if (options.output == "json") {
    v1::ListJobsResponse all;
    for (const v1::JobStatus& job : *jobs) *all.add_jobs() = job;
    std::printf("%s\n", ToJson(all).c_str());
  } else if (jobs->empty()) {
    std::fprintf(stderr, "no jobs\n");
  } else {
    PrintTable(*jobs);
  }
  return kExitOk;
}

}  // namespace

void AddGet(CLI::App& app, Globals& globals) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("get", "List jobs, or show one, in a line each");
  verb->add_option("job", options->job, kJobHelp);
  AddOutput(verb, options->output);
  verb->callback(
      [&globals, options] { globals.run = [&globals, options] { return Run(globals, *options); }; });
}

}  // namespace metp
