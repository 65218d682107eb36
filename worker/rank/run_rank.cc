#include "worker/rank/run_rank.h"

#include <algorithm>
#include <iostream>
#include <new>
#include <thread>

#include "absl/strings/str_cat.h"
#include "proto/support/status_macros.h"
#include "worker/model/config.h"
#include "worker/rank/checkpoints.h"
#include "worker/rank/trainer.h"

namespace metp {

namespace {

absl::Status Barrier(const RankRings& rings) {
  METP_RETURN_IF_ERROR(rings.ring.Barrier());
  return rings.across == nullptr ? absl::OkStatus() : rings.across->Barrier();
}

/// For the rank's output; what happens all the time is not said there.
std::string Sentence(const v1::CheckpointNote& note) {
  switch (note.kind()) {
    case v1::CheckpointNote::FAILED:
      if (note.step() == 0) return absl::StrCat("checkpoints: ", note.text());
      return absl::StrCat("checkpoint of step ", note.step(), ": ", note.text());
    case v1::CheckpointNote::RESUMED:
      return absl::StrCat("going on from ", note.text());
    case v1::CheckpointNote::PASSED_OVER:
      return absl::StrCat("passing over a broken checkpoint: ", note.text());
    default:
      return "";
  }
}

absl::StatusOr<v1::RankResult> Train(const v1::RankStart& start, RankDevice& device, const RankRings& rings,
                                     const Dataset& dataset, Checkpoints& checkpoints,
                                     const RankHooks& hooks) {
  const int p = start.plan().degree();
  METP_ASSIGN_OR_RETURN(const int resumed,
                        checkpoints.Choose(ParameterLayout(MakeModelConfig(start.job().model()), p,
                                                           start.rank() % p, start.plan().head_groups())));
  METP_ASSIGN_OR_RETURN(
      const std::unique_ptr<Trainer> trainer,
      Trainer::Create(start.job(), start.plan(), device.backend(), rings.ring, rings.across, &dataset));
  METP_RETURN_IF_ERROR(checkpoints.Load(trainer->parameters()));
  trainer->ResumeAfter(resumed);
  trainer->set_whereabouts(hooks.where);
  StepTracer tracer(*trainer, device.backend(), hooks.trace_orders, hooks.on_trace);
  if (hooks.on_training) hooks.on_training();
  while (!trainer->done() && !trainer->leaving()) {
    tracer.BeforeStep();
    METP_ASSIGN_OR_RETURN(v1::StepReport report,
                          trainer->Step(hooks.asked_to_leave && hooks.asked_to_leave()));
    tracer.AfterStep(report);
    if (hooks.where != nullptr) hooks.where->Enter("between two steps: checkpoints");
    const absl::StatusOr<double> seconds =
        checkpoints.AfterStep(report, trainer->done() || trainer->leaving(), trainer->parameters());
    report.set_checkpoint_seconds(seconds.value_or(0));
    report.set_step_seconds(report.step_seconds() + report.checkpoint_seconds());
    hooks.on_step(report);  // the step is done, whatever became of its checkpoint
    METP_RETURN_IF_ERROR(seconds.status());
  }
  v1::RankResult result;
  result.set_interrupted(!trainer->done());
  if (const absl::Status& last = checkpoints.last_failure(); trainer->done() && !last.ok()) {
    return absl::Status(last.code(), absl::StrCat("the last checkpoint was not written: ", last.message()));
  }
  if (start.measure_sgemm() && trainer->done()) {
    METP_RETURN_IF_ERROR(Barrier(rings));
    result.set_sgemm_flops_per_second(device.MeasureFlops());
  }
  METP_RETURN_IF_ERROR(Barrier(rings));  // nobody leaves while a neighbour still needs the ring
  return result;
}

}  // namespace

absl::StatusOr<std::unique_ptr<RankDevice>> OpenRankDevice(const v1::RankStart& start) {
  return OpenRankDevice({start.plan().device(), start.plan().precision(), start.threads()});
}

absl::StatusOr<v1::RankResult> RunRank(const v1::RankStart& start, RankDevice& device, const RankRings& rings,
                                       const Dataset& dataset, const RankHooks& hooks) {
  // Goes after the rings have been aborted: it may wait for a disk.
  Checkpoints checkpoints(
      RealFileSystem(), start, rings, dataset,
      [&](const v1::CheckpointNote& note) {
        if (const std::string text = Sentence(note); !text.empty())
          std::cerr << "rank " << start.rank() << ": " << text << std::endl;
        if (hooks.on_checkpoint) hooks.on_checkpoint(note);
      },
      hooks.unfinished);
  absl::StatusOr<v1::RankResult> result = absl::UnknownError("not run");
  try {
    result = Train(start, device, rings, dataset, checkpoints, hooks);
  } catch (const StepError& error) {  // a device that failed
    result = error.status();
  } catch (const std::bad_alloc&) {
    result = absl::ResourceExhaustedError("the host has no memory left for what this rank sets up");
  }
  if (result.ok()) return result;
  rings.ring.Abort(result.status());
  if (rings.across == nullptr) return result;
  rings.across->Abort(result.status());
  if (!absl::IsUnavailable(result.status()) && !absl::IsDeadlineExceeded(result.status())) return result;
  return absl::Status(result.status().code(),
                      absl::StrCat("ring ", start.rank() / start.plan().degree(),
                                   ", ranks counted within it or across rings: ", result.status().message()));
}

int DefaultThreads(int ranks) {
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / std::max(1, ranks));
}

}  // namespace metp
