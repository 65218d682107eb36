#include "worker/rank/run_rank.h"

#include <algorithm>
#include <new>
#include <thread>

#include "proto/support/status_macros.h"
#include "worker/rank/trainer.h"

namespace metp {

namespace {

absl::StatusOr<v1::RankResult> Train(const v1::RankStart& start, Communicator& communicator,
                                     const Dataset& dataset, const OnStep& on_step) {
  MemoryLedger ledger;
  const std::unique_ptr<Backend> backend = MakeCpuBackend(start.threads(), ledger);
  METP_ASSIGN_OR_RETURN(const std::unique_ptr<Trainer> trainer,
                        Trainer::Create(start.job(), start.plan(), *backend, communicator, &dataset));
  while (!trainer->done()) {
    METP_ASSIGN_OR_RETURN(const v1::StepReport report, trainer->Step());
    on_step(report);
  }
  v1::RankResult result;
  if (start.measure_sgemm()) {
    METP_RETURN_IF_ERROR(communicator.Barrier());
    result.set_sgemm_flops_per_second(MeasureSgemmFlops(start.threads()));
  }
  METP_RETURN_IF_ERROR(communicator.Barrier());  // nobody leaves while a neighbour still needs the ring
  return result;
}

}  // namespace

absl::StatusOr<v1::RankResult> RunRank(const v1::RankStart& start, Communicator& communicator,
                                       const Dataset& dataset, const OnStep& on_step) {
  absl::StatusOr<v1::RankResult> result = absl::UnknownError("not run");
  try {
    result = Train(start, communicator, dataset, on_step);
  } catch (const StepError& error) {  // the backend's own workspace
    result = error.status();
  } catch (const std::bad_alloc&) {
    result = absl::ResourceExhaustedError("the host has no memory left for what this rank sets up");
  }
  if (!result.ok()) communicator.Abort(result.status());
  return result;
}

int DefaultThreads(int ranks) {
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / std::max(1, ranks));
}

}  // namespace metp
