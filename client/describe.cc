// metpctl describe: everything about one job, for people.

#include <memory>

#include "absl/strings/str_cat.h"
#include "client/api.h"
#include "client/command.h"
#include "client/format.h"
#include "client/summary.h"
#include "google/protobuf/util/time_util.h"
#include "proto/support/job_json.h"

namespace metp {
namespace {

std::string Time(const google::protobuf::Timestamp& time) {
  return time.seconds() == 0 ? "-" : google::protobuf::util::TimeUtil::ToString(time);
}

std::string Restarts(const v1::JobStatus& job) {
  if (job.fruitless_restarts() == 0) return absl::StrCat(job.restarts());
  return absl::StrCat(job.restarts(), ", ", job.fruitless_restarts(), " of at most ",
                      job.job().max_restarts(), " without a newer checkpoint");
}

std::string Checkpoint(const v1::JobStatus& job) {
  if (!job.job().has_checkpoint()) return "none: the job has no checkpoint section";
  std::string text =
      job.checkpoint_step() == 0 ? std::string("none yet") : absl::StrCat("step ", job.checkpoint_step());
  if (job.has_checkpoint_time()) absl::StrAppend(&text, ", ", Time(job.checkpoint_time()));
  if (!job.checkpoint_trouble().empty())
    absl::StrAppend(&text, "; the last one was not written: ", job.checkpoint_trouble());
  return text;
}

int Run(const Globals& globals, const std::string& reference) {
  Api api(globals.coordinator);
  const absl::StatusOr<v1::JobStatus> job = api.GetJob(reference);
  if (!job.ok()) return Fail(job.status());
  std::string out = Table({
      {"Job:", job->id()},
      {"State:", absl::StrCat(v1::JobStatus::State_Name(job->state()), job->stopping() ? " (stopping)" : "")},
      {"Reason:", job->reason().empty() ? "-" : job->reason()},
      {"Restarts:", Restarts(*job)},
      {"Checkpoint:", Checkpoint(*job)},
      {"Submitted:", Time(job->submitted())},
      {"Started:", Time(job->started())},
      {"Finished:", Time(job->finished())},
      {"Attempt:", job->attempt().empty() ? "-" : job->attempt()},
      {"Step:", absl::StrCat(job->step(), " of ", job->job().train().steps())},
      {"Loss:", job->has_loss() ? Short(job->loss()) : "-"},
      {"Tokens/s:", job->step() > 0 ? Grouped(static_cast<int64_t>(job->tokens_per_second())) : "-"},
  });
  absl::StrAppend(&out, "\nPlan:\n", PlanLines(*job));
  if (const std::string ranks = RankTable(*job); !ranks.empty()) absl::StrAppend(&out, "\nRanks:\n", ranks);
  if (const std::string memory = MemoryTable(*job); !memory.empty()) {
    absl::StrAppend(&out, "\nPeak memory, and what was held then:\n", memory);
  }
  if (const std::string overlap = OverlapTable(*job); !overlap.empty()) {
    absl::StrAppend(&out, "\nCommunication hidden behind computation so far:\n", overlap);
  }
  absl::StrAppend(&out, "\nJob file, complete:\n", JobToJson(job->job()), "\n");
  std::fputs(out.c_str(), stdout);
  return kExitOk;
}

}  // namespace

void AddDescribe(CLI::App& app, Globals& globals) {
  auto job = std::make_shared<std::string>();
  CLI::App* verb = app.add_subcommand("describe", "Show everything about a job");
  verb->add_option("job", *job, kJobHelp)->required();
  verb->callback([&globals, job] { globals.run = [&globals, job] { return Run(globals, *job); }; });
}

}  // namespace metp
