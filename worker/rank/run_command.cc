#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <iostream>

#include "absl/strings/str_join.h"
#include "proto/support/job_file.h"
#include "worker/backend/sim/profile.h"
#include "worker/model/plan.h"
#include "worker/rank/probe.h"
#include "worker/rank/run.h"
#include "worker/rank/run_report.h"
#include "worker/rank/signals.h"

namespace metp {

namespace {

constexpr int kMostRanks = 256;  // threads or processes that one machine is asked to run
constexpr int kMostThreads = 1024;

struct Arguments {
  std::string file, comm = "local", output = "text", backend, profile, precision = "bf16";
  int ranks = 0, threads = 0;
  std::vector<std::string> set;
};

int Fail(const absl::Status& status, int code) {
  std::cerr << "metp-rank: " << std::string(status.message()) << "\n";
  return code;
}

constexpr int kLeft = 128 + SIGTERM;

/// Options that do not go together; OK if all do.
absl::Status Check(const Arguments& arguments) {
  const bool sim = arguments.backend == "sim", cuda = arguments.backend == "cuda";
  if (sim == arguments.profile.empty()) {
    return absl::InvalidArgumentError("--backend sim and --profile go together");
  }
  if (arguments.comm == "nccl" && !cuda)
    return absl::InvalidArgumentError("--comm nccl needs --backend cuda");
  if (arguments.comm == "gloo" && cuda) {
    return absl::InvalidArgumentError(
        "--comm gloo: found --backend cuda, expected nccl (a process and a GPU for each rank) or local (all "
        "ranks on one "
        "GPU)");
  }
  return absl::OkStatus();
}

int Run(Arguments arguments, LeaveWish& leave) {
  std::vector<std::string> overrides = arguments.set;
  if (arguments.ranks > 0) overrides.push_back("parallel.degree=" + std::to_string(arguments.ranks));
  absl::StatusOr<v1::JobSpec> job = LoadJobFile(arguments.file, overrides);
  if (!job.ok()) return Fail(job.status(), 2);
  if (arguments.backend.empty())
    arguments.backend = job->device() == v1::JobSpec::DEVICE_GPU ? "cuda" : "cpu";
  if (const absl::Status options = Check(arguments); !options.ok()) return Fail(options, 2);

  const bool sim = arguments.backend == "sim";
  const int64_t ranks = int64_t{job->parallel().degree()} * std::max(1, job->parallel().rings());
  if (!sim && ranks > kMostRanks) {
    return Fail(ProblemInJobFile(arguments.file, overrides,
                                 job->parallel().rings() > 1 ? "parallel.rings" : "parallel.degree",
                                 "found " + std::to_string(ranks) + " ranks in all rings, expected at most " +
                                     std::to_string(kMostRanks) + " on one machine"),
                2);
  }
  // Bad data is said before anything is started, with its place in the job file. A simulation reads none.
  if (const absl::Status data = sim ? absl::OkStatus() : Dataset::Open(*job).status(); !data.ok()) {
    return Fail(ProblemInJobFile(arguments.file, overrides, "data.source", std::string(data.message())), 2);
  }

  RunRequest request{*job, ResolvePlan(*job), arguments.threads, &leave};
  if (arguments.backend == "cuda") {
    request.plan.set_device(v1::JobSpec::DEVICE_GPU);
    if (arguments.precision == "bf16") request.plan.set_precision(v1::DeviceProfile::PRECISION_BF16);
  }
  if (request.threads == 0) request.threads = DefaultThreads(RanksOf(request.plan));
  const bool json = arguments.output == "json";
  if (!json) {
    for (const std::string& note : request.plan.notes()) std::cerr << "plan: " << note << "\n";
  }
  const OnStep on_step = [&](const v1::StepReport& step) {
    if (json) return;
    std::printf("step %d  loss %.4f  grad norm %.3f  lr %.2e  %.2f s  %.0f tokens/s\n", step.step(),
                step.loss(), step.grad_norm(), step.learning_rate(), step.step_seconds(),
                static_cast<double>(step.tokens()) / step.step_seconds());
    std::fflush(stdout);
  };
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  absl::StatusOr<RunRecord> record = absl::UnknownError("not run");
  if (sim) {
    const absl::StatusOr<v1::DeviceProfile> profile =
        arguments.profile == "local"
            ? ProbeThisMachine(RanksOf(request.plan), request.threads,
                               arguments.comm == "gloo" ? ProbedLink::kLoopback : ProbedLink::kMemory)
            : LoadProfile(arguments.profile);
    if (!profile.ok()) return Fail(profile.status(), 2);
    record = RunSim(request, *profile);
  } else {
    record = arguments.comm == "local" ? RunLocal(request, on_step) : RunProcesses(request, self, on_step);
  }
  if (!record.ok()) return Fail(record.status(), 1);
  const nlohmann::ordered_json report = RunReport(request, *record);
  std::cout << (json ? report.dump(2) + "\n" : RunSummary(report)) << std::flush;
  if (!std::cout || std::ferror(stdout))
    return Fail(absl::DataLossError("the output could not be written"), 1);
  if (!record->interrupted) return 0;
  std::cerr << "metp-rank: left on SIGTERM before the last step"
            << (job->has_checkpoint() ? "; the same command goes on from the checkpoint\n" : "\n");
  return kLeft;
}

}  // namespace

int RunCommand(int argc, char** argv) {
  Arguments arguments;
  CLI::App app{"Trains a job on this machine, or simulates a step of it on another, without any service",
               "metp-rank run"};
  app.add_option("-f,--file", arguments.file, "job file")->required();
  app.add_option("--ranks", arguments.ranks, "ranks in the ring; overrides parallel.degree")
      ->check(CLI::Range(1, kMostRanks));
  app.add_option("--comm", arguments.comm,
                 "local: ranks are threads; gloo: ranks are processes; nccl: ranks are processes, the n-th "
                 "on the n-th GPU")
      ->check(CLI::IsMember({"local", "gloo", "nccl"}));
  app.add_option(
         "--backend", arguments.backend,
         "cpu; cuda: GPUs; sim: one step on a simulated device, no data read; default: by the job's device, "
         "auto being cpu")
      ->check(CLI::IsMember({"cpu", "cuda", "sim"}));
  app.add_option("--precision", arguments.precision,
                 "of weights and activations at work on a GPU: bf16 or fp32")
      ->capture_default_str()
      ->check(CLI::IsMember({"bf16", "fp32"}));
  app.add_option("--profile", arguments.profile,
                 "device to simulate: " + absl::StrJoin(BuiltInProfiles(), ", ") +
                     ", a profile file, or local: this machine, measured first");
  app.add_option("--threads", arguments.threads, "compute threads of each rank; default: cores / ranks")
      ->check(CLI::Range(1, kMostThreads));
  app.add_option("--set", arguments.set,
                 "key=value: replaces a value of the job file, such as train.steps=10")
      ->allow_extra_args(false);
  app.add_option("-o,--output", arguments.output, "text or json")->check(CLI::IsMember({"text", "json"}));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  LeaveWish leave;
  const SignalThread signals([&] { leave.Ask(); }, [] {}, [] { DieOf(SIGINT); });
  return Run(arguments, leave);
}

}  // namespace metp
