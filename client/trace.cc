// metpctl trace: what every rank of a running job does in its next steps, as a file for Perfetto.

#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "client/api.h"
#include "client/command.h"
#include "client/interrupt.h"
#include "client/job_trace.h"
#include "client/output_file.h"

namespace metp {
namespace {

constexpr int kLongestTimeout = 86400;

struct Options {
  std::string job, file;
  int steps = 2, timeout_seconds = 120;
};

int Write(const JobTrace& trace, const std::string& path, OutputFile* file) {
  const std::string text = trace.ToChromeTrace();
  if (file == nullptr) {
    std::fwrite(text.data(), 1, text.size(), stdout);  // main sees whether that went well
  } else if (const absl::Status written = file->Write(text); !written.ok()) {
    Fail(written);
    return kExitOutput;
  }
  std::fprintf(file == nullptr ? stderr : stdout, "%s%s; open it at https://ui.perfetto.dev\n",
               file == nullptr ? "" : (path + ": ").c_str(), trace.Summary().c_str());
  return kExitOk;
}

absl::Status TimedOut(const Options& options, const std::string& id, const JobTrace& trace) {
  return absl::AbortedError(absl::StrCat(
      "job ", id, ": no whole trace within ", options.timeout_seconds, " s (--timeout): ", trace.Missing(),
      ". Ranks send a step when it is done, and those of older workers send none; metpctl logs ", id,
      " says if parts were dropped on their way"));
}

int Run(const Globals& globals, const Options& options) {
  std::optional<OnInterrupt> interrupt;  // goes after the file: what is beside it is removed
  std::unique_ptr<OutputFile> file;      // none: standard output
  if (options.file != "-") {
    absl::StatusOr<std::unique_ptr<OutputFile>> opened = OutputFile::Open(options.file);
    if (!opened.ok()) {
      Fail(opened.status());
      return kExitOutput;
    }
    file = *std::move(opened);
  }
  Api api(globals.coordinator);
  const absl::StatusOr<v1::JobStatus> job = api.GetJob(options.job);
  if (!job.ok()) return Fail(job.status());
  JobTrace trace(*job, options.steps);
  interrupt.emplace([&api] { api.Interrupt(); });
  if (file != nullptr) {
    if (const absl::Status begun = file->Begin(); !begun.ok()) {
      Fail(begun);
      return kExitOutput;
    }
  }
  absl::Status status = api.TraceJob(job->id(), options.steps, std::chrono::seconds(options.timeout_seconds),
                                     [&trace](const v1::TraceChunk& chunk) { trace.Add(chunk); });
  if (absl::IsDeadlineExceeded(status)) status = TimedOut(options, job->id(), trace);
  if (!status.ok()) return Fail(status);
  if (const std::string note = trace.End(); !note.empty())
    std::fprintf(stderr, "metpctl: %s\n", note.c_str());
  if (!trace.complete())
    return Fail(absl::AbortedError(absl::StrCat("job ", job->id(), ": ", trace.Missing())));
  if (file == nullptr || !file->begun()) interrupt.reset();  // a pipe may take its time
  return Write(trace, options.file, file.get());
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
      ->check(CLI::Range(1, kMostTracedSteps));
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
