// metpctl plan: what a job would cost on a device profile. Needs no cluster and reads no data.

#include "worker/model/plan.h"

#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/command.h"
#include "client/job_file_error.h"
#include "client/plan_table.h"
#include "proto/support/job_file.h"
#include "proto/support/status_macros.h"
#include "server/planner/candidates.h"
#include "server/planner/peers.h"
#include "server/planner/planner.h"
#include "worker/backend/sim/profile.h"
#include "worker/rank/simulate.h"

namespace metp {
namespace {

struct Options {
  std::string file, profile, output = "text", timeline;
  std::vector<std::string> set;
  int degree = 0, devices = 0;
  bool max_sequence = false, compare = false;
};

int Print(const Options& options, const PlanAnswer& answer) {
  std::printf(
      "%s", options.output == "json" ? (PlanJson(answer).dump(2) + "\n").c_str() : PlanText(answer).c_str());
  return kExitOk;
}

absl::Status Compare(PlanAnswer& answer) {
  METP_ASSIGN_OR_RETURN(answer.plan_max_sequence, MaxSequenceOf(answer.job, answer.plan, answer.profile));
  answer.peers = ComparePeers(answer.job, answer.plan, answer.profile);
  return absl::OkStatus();
}

/// The simulated step of rank 0 as a trace.
absl::Status WriteTimeline(const std::string& path, const PlanAnswer& answer) {
  Timeline timeline;
  METP_RETURN_IF_ERROR(SimulateRank(answer.job, answer.plan, answer.profile, 0, &timeline).status());
  std::ofstream file(path);
  file << timeline.ToChromeTrace(
      absl::StrCat("rank 0 of ", RanksOf(answer.plan), ", simulated on ", answer.profile.name()));
  file.close();
  return file ? absl::OkStatus()
              : absl::DataLossError(absl::StrCat("--timeline: ", path, " could not be written"));
}

int Finish(const Options& options, PlanAnswer& answer) {
  if (!options.timeline.empty()) {
    if (const absl::Status written = WriteTimeline(options.timeline, answer); !written.ok()) {
      Fail(written);
      return absl::IsDataLoss(written) ? kExitOutput : ExitCodeOf(written);
    }
  }
  if (options.compare) {
    if (const absl::Status compared = Compare(answer); !compared.ok()) return Fail(compared);
  }
  return Print(options, answer);
}

int Run(const Options& options) {
  std::vector<std::string> overrides = options.set;
  if (options.degree > 0) overrides.push_back("parallel.degree=" + std::to_string(options.degree));
  const absl::StatusOr<v1::JobSpec> job = LoadJobFile(options.file, overrides);
  if (!job.ok()) return FailInJobFile(options.file, overrides, job.status());
  const absl::StatusOr<v1::DeviceProfile> profile = LoadProfile(options.profile);
  if (!profile.ok()) return Fail(profile.status());
  const int devices = options.devices > 0 ? options.devices : profile->devices_per_node();

  if (const int64_t least = RanksOf(ResolvePlan(*job, 1)); options.devices > 0 && least > options.devices) {
    return Fail(absl::InvalidArgumentError(absl::StrCat("--devices: found ", options.devices,
                                                        ", and the job has at least ", least,
                                                        " ranks in all (parallel.degree, parallel.rings)")));
  }

  PlanAnswer answer;
  answer.job = *job;
  answer.profile = *profile;
  if (options.max_sequence) {
    const absl::StatusOr<LongestSequence> longest = MaxSequence(*job, *profile, devices);
    if (!longest.ok()) return Fail(longest.status());
    if (longest->tokens == 0) return Fail(absl::ResourceExhaustedError("no sequence fits, however short"));
    answer.max_sequence = longest->tokens;
    answer.plan = longest->plan;
    answer.job = WithSequence(*job, longest->tokens);
    absl::StatusOr<v1::Prediction> prediction = Predict(answer.job, answer.plan, *profile);
    if (!prediction.ok()) return Fail(prediction.status());
    answer.prediction = *std::move(prediction);
    return Finish(options, answer);
  }
  absl::StatusOr<Choice> choice = ChoosePlan(*job, *profile, devices);
  if (!choice.ok()) return FailInJobFile(options.file, overrides, choice.status());
  answer.plan = choice->plan;
  answer.prediction = choice->prediction;
  return Finish(options, answer);
}

}  // namespace

void AddPlan(CLI::App& app, Globals& globals) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand(
      "plan",
      "Say what a job would need and how fast it would be on given devices, by simulation; needs no "
      "coordinator and opens no data");
  verb->add_option("-f,--file", options->file, "the job file (YAML)")->required();
  verb->add_option("--profile", options->profile,
                   "the devices: " + absl::StrJoin(BuiltInProfiles(), ", ") + ", or a profile file")
      ->required();
  verb->add_option("--degree", options->degree, "ranks in the ring; over parallel.degree")
      ->check(CLI::Range(1, kMostDevices));
  verb->add_option("--devices", options->devices,
                   "devices there are, which parallel.degree and parallel.rings may take where they are "
                   "auto; default: one node's")
      ->check(CLI::Range(1, kMostDevices));
  verb->add_flag("--max-sequence", options->max_sequence,
                 "find the longest data.sequence_length that fits, and plan that");
  verb->add_flag(
      "--compare", options->compare,
      "also what the job would need with tensor, sequence or context parallelism instead (modelled)");
  verb->add_option("--timeline", options->timeline,
                   "write the step as a Chrome trace to this file; ui.perfetto.dev opens it");
  verb->add_option("--set", options->set, "KEY=VALUE over the file's, e.g. train.steps=10; may be repeated")
      ->allow_extra_args(false);
  AddOutput(verb, options->output);
  verb->callback([&globals, options] { globals.run = [options] { return Run(*options); }; });
}

}  // namespace metp
