// metpctl export: a checkpoint's weights as a folder that Hugging Face's transformers opens. The checkpoint is read and
// verified here: its folder must be visible on this machine.

#include <limits>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/api.h"
#include "client/command.h"
#include "client/format.h"
#include "proto/support/status_macros.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/hugging_face.h"

namespace metp {
namespace {

constexpr char kNoCheckpoint[] = "; expected the folder of a complete checkpoint, visible on this machine";
constexpr char kVisible[] =
    "; a job's checkpoint.directory must be visible on this machine, and where it has another path here, "
    "export --from takes that";

struct Options {
  std::string job, from, to, type = "float32";
  int step = 0;  // 0: the newest
};

/// The same exit codes as everywhere, but that nobody was asked who could be out of reach.
int FailHere(const absl::Status& status) {
  Fail(status);
  const bool unwritten =
      absl::IsUnavailable(status) || absl::IsResourceExhausted(status) || absl::IsAlreadyExists(status);
  return unwritten ? kExitOutput : ExitCodeOf(status);
}

/// The checkpoints of a job that come into question, best first; at least one.
absl::StatusOr<std::vector<std::string>> Folders(const v1::JobStatus& job, int step) {
  if (!job.job().has_checkpoint()) {
    return absl::NotFoundError(absl::StrCat(
        job.id(),
        ": the job has no checkpoint section, so nothing of it was saved; there is nothing to export"));
  }
  const std::string& directory = job.job().checkpoint().directory();
  const absl::StatusOr<std::vector<int>> steps = CompleteCheckpoints(RealFileSystem(), directory);
  if (!steps.ok()) return absl::NotFoundError(absl::StrCat(steps.status().message(), kVisible));
  if (steps->empty()) {
    return absl::NotFoundError(absl::StrCat(directory, ": no complete checkpoint is there", kVisible));
  }
  std::vector<std::string> folders;
  for (const int there : *steps) {
    if (step == 0 || there == step) folders.push_back(CheckpointFolder(directory, there));
  }
  if (!folders.empty()) return folders;
  return absl::NotFoundError(absl::StrCat(CheckpointFolder(directory, step),
                                          ": is not there; complete checkpoints are of step ",
                                          absl::StrJoin(*steps, ", "), kVisible));
}

int Export(const std::vector<std::string>& folders, const Options& options) {
  HuggingFaceOptions how;
  how.type = options.type == "bfloat16" ? ExportType::kBF16 : ExportType::kF32;
  for (size_t i = 0; i < folders.size(); ++i) {
    const std::string& from = folders[i];
    std::fprintf(stderr, "reading %s\n", from.c_str());
    const absl::StatusOr<HuggingFaceExport> done = ExportHuggingFace(RealFileSystem(), from, options.to, how);
    if (done.ok()) {
      std::printf("%s\n", options.to.c_str());
      std::fprintf(stderr, "exported step %d: %s parameters as %s, %s in %d %s\n", done->step,
                   Grouped(done->parameters).c_str(), options.type.c_str(),
                   Bytes(static_cast<double>(done->bytes)).c_str(), done->parts,
                   done->parts == 1 ? "file" : "files");
      return kExitOk;
    }
    if (absl::IsNotFound(done.status()))
      return FailHere(absl::NotFoundError(
          absl::StrCat(done.status().message(), options.from.empty() ? kVisible : kNoCheckpoint)));
    if (!absl::IsDataLoss(done.status()) || i + 1 == folders.size()) return FailHere(done.status());
    std::fprintf(stderr, "passing over a broken checkpoint: %s\n",
                 std::string(done.status().message()).c_str());
  }
  return kExitNotFound;  // there was none to read
}

int Run(const Globals& globals, const Options& options) {
  if (!options.from.empty()) return Export({options.from}, options);
  Api api(globals.coordinator);
  const absl::StatusOr<v1::JobStatus> job = api.GetJob(options.job);
  if (!job.ok()) return Fail(job.status());
  if (!job->saved())
    std::fprintf(
        stderr,
        "metpctl: job %s has written no checkpoint itself; what is exported was in its directory before\n",
        job->id().c_str());
  const absl::StatusOr<std::vector<std::string>> folders = Folders(*job, options.step);
  if (!folders.ok()) return FailHere(folders.status());
  return Export(*folders, options);
}

}  // namespace

void AddExport(CLI::App& app, Globals& globals) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand(
      "export", "Write a checkpoint's weights as a Hugging Face folder; prints the folder's name");
  CLI::Option* job = verb->add_option("job", options->job, kJobHelp);
  CLI::Option* step = verb->add_option("--step", options->step,
                                       "its checkpoint of this step; default: the newest that is whole")
                          ->check(CLI::Range(1, std::numeric_limits<int>::max()));
  verb->add_option("--from", options->from,
                   "the folder of a checkpoint (.../step-00000120) in place of a job; needs no coordinator")
      ->excludes(job)
      ->excludes(step);
  verb->add_option("--to", options->to, "the folder to write: a new one, or an empty one")->required();
  verb->add_option("--dtype", options->type, "of the weights")
      ->capture_default_str()
      ->check(CLI::IsMember({"float32", "bfloat16"}));
  verb->callback([&globals, options] {
    if (options->job.empty() && options->from.empty()) throw CLI::RequiredError("JOB or --from");
    if (options->to.empty()) throw CLI::ValidationError("--to", "expected the name of a folder");
    globals.run = [&globals, options] { return Run(globals, *options); };
  });
}

}  // namespace metp
