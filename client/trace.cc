// metpctl trace: what every rank of a running job does in its next steps, as a file for Perfetto.

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>

#include "absl/strings/str_cat.h"
#include "client/api.h"
#include "client/command.h"
#include "client/interrupt.h"
#include "client/job_trace.h"

namespace metp {
namespace {

constexpr int kMostSteps = 16;
constexpr int kLongestTimeout = 86400;

struct Options {
  std::string job, file;
  int steps = 2, timeout_seconds = 120;
};

/// Found out before any rank is bothered.
absl::Status MayWrite(const std::string& path) {
  const std::string folder = std::filesystem::absolute(path).parent_path();
  if (path == "-" || access(folder.c_str(), W_OK) == 0) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat(path, ": could not be written: ", folder, ": ", std::strerror(errno)));
}

/// Writes beside it and renames, so that there is never half of it.
absl::Status WriteFile(const std::string& path, const std::string& text) {
  const std::string beside = absl::StrCat(path, ".", getpid(), ".part");
  const auto failed = [&] {
    const std::string why = std::strerror(errno);
    unlink(beside.c_str());
    return absl::DataLossError(absl::StrCat(path, ": could not be written: ", why));
  };
  errno = 0;
  std::ofstream file(beside, std::ios::binary);
  file << text;
  file.close();
  if (!file || std::rename(beside.c_str(), path.c_str()) != 0) return failed();
  return absl::OkStatus();
}

int Write(const Options& options, const JobTrace& trace) {
  const std::string text = trace.ToChromeTrace();
  const bool to_stdout = options.file == "-";
  if (to_stdout) {
    std::fwrite(text.data(), 1, text.size(), stdout);  // main sees whether that went well
  } else if (const absl::Status written = WriteFile(options.file, text); !written.ok()) {
    Fail(written);
    return kExitOutput;
  }
  std::fprintf(to_stdout ? stderr : stdout, "%s%s; open it at https://ui.perfetto.dev\n",
               to_stdout ? "" : (options.file + ": ").c_str(), trace.Summary().c_str());
  return kExitOk;
}

int Run(const Globals& globals, const Options& options) {
  if (const absl::Status writable = MayWrite(options.file); !writable.ok()) {
    Fail(writable);
    return kExitOutput;
  }
  Api api(globals.coordinator);
  const absl::StatusOr<v1::JobStatus> job = api.GetJob(options.job);
  if (!job.ok()) return Fail(job.status());
  JobTrace trace(*job, options.steps);
  absl::Status status;
  {
    OnInterrupt interrupt([&api] { api.Interrupt(); });
    status = api.TraceJob(job->id(), options.steps, std::chrono::seconds(options.timeout_seconds),
                          [&trace](const v1::TraceChunk& chunk) { trace.Add(chunk); });
  }
  if (absl::IsDeadlineExceeded(status)) {
    status = absl::DeadlineExceededError(absl::StrCat(
        "job ", job->id(), ": no whole trace within ", options.timeout_seconds, " s (--timeout): ",
        trace.Missing(), ". Ranks send a step when it is done, and those of older workers send none"));
  }
  if (!status.ok()) return Fail(status);
  if (!trace.complete())
    return Fail(absl::AbortedError(absl::StrCat("job ", job->id(), ": ", trace.Missing())));
  return Write(options, trace);
}

}  // namespace

void AddTrace(CLI::App& app, Globals& globals) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand(
      "trace",
      "Write what all ranks of a running job do in its next steps, on one time axis: compute, communication "
      "and waits; ui.perfetto.dev opens the file");
  verb->add_option("job", options->job, kJobHelp)->required();
  verb->add_option("-o,--output", options->file, "the file to write, a Chrome trace; -: standard output")
      ->required();
  verb->add_option("--steps", options->steps, "whole steps, one after the other")
      ->capture_default_str()
      ->check(CLI::Range(1, kMostSteps));
  verb->add_option("--timeout", options->timeout_seconds,
                   "seconds within which all ranks must have done these")
      ->capture_default_str()
      ->check(CLI::Range(1, kLongestTimeout));
  verb->footer(
      "Times are those of the ranks' machines: ranks on several machines are as far apart as their clocks.");
  verb->callback(
      [&globals, options] { globals.run = [&globals, options] { return Run(globals, *options); }; });
}

}  // namespace metp
