#include <unistd.h>

#include <thread>

#include "absl/strings/str_cat.h"
#include "proto/support/status_macros.h"
#include "worker/model/plan.h"
#include "worker/rank/run.h"

namespace metp {

absl::Status FirstCause(const std::vector<absl::Status>& statuses) {
  absl::Status consequence;
  for (size_t rank = 0; rank < statuses.size(); ++rank) {
    const absl::Status& status = statuses[rank];
    if (status.ok()) continue;
    const absl::Status named(status.code(),
                             "rank " + std::to_string(rank) + ": " + std::string(status.message()));
    if (!absl::IsUnavailable(status) && !absl::IsCancelled(status)) return named;
    if (consequence.ok()) consequence = named;
  }
  return consequence;
}

absl::StatusOr<RunRecord> RunLocal(const RunRequest& request, const OnStep& on_step) {
  const int p = request.plan.degree(), rings = RingsOf(request.plan), ranks = RanksOf(request.plan);
  METP_ASSIGN_OR_RETURN(const std::unique_ptr<Dataset> dataset, Dataset::Open(request.job));
  std::vector<std::unique_ptr<RankDevice>> devices;  // [rank]
  for (int rank = 0; rank < ranks; ++rank) {
    METP_ASSIGN_OR_RETURN(devices.emplace_back(),
                          OpenRankDevice({request.plan.device(), request.plan.precision(), request.threads}));
  }
  // Every `step`-th of `count` ranks from `first` on.
  const auto join = [&](int first, int step, int count, CommunicatorOptions options) {
    std::vector<RankDevice*> members;
    for (int i = 0; i < count; ++i) members.push_back(devices[first + i * step].get());
    return members.front()->JoinThreads(members, options);
  };
  std::vector<std::vector<std::unique_ptr<Communicator>>> ring, across;  // [ring][place], [place][ring]
  for (int i = 0; i < rings; ++i) {
    METP_ASSIGN_OR_RETURN(ring.emplace_back(), join(i * p, 1, p, {}));
  }
  for (int place = 0; place < p && rings > 1; ++place) {
    METP_ASSIGN_OR_RETURN(across.emplace_back(), join(place, p, rings, kAcrossRings));
  }

  RunRecord record;
  record.steps.resize(ranks);
  record.sgemm_flops_per_second.resize(ranks);
  std::vector<absl::Status> statuses(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      v1::RankStart start;
      *start.mutable_job() = request.job;
      *start.mutable_plan() = request.plan;
      start.set_rank(rank);
      start.set_threads(request.threads);
      start.set_measure_sgemm(true);
      start.set_attempt(absl::StrCat("run-", getpid()));
      RankHooks hooks;
      hooks.on_step = [&](const v1::StepReport& report) {
        record.steps[rank].push_back(report);
        if (rank == 0) on_step(report);
      };
      if (request.leave != nullptr) hooks.asked_to_leave = [&] { return request.leave->asked(); };
      const absl::StatusOr<v1::RankResult> result =
          RunRank(start, *devices[rank],
                  {*ring[rank / p][rank % p], rings > 1 ? across[rank % p][rank / p].get() : nullptr},
                  *dataset, hooks);
      statuses[rank] = result.status();
      if (!result.ok()) return;
      record.sgemm_flops_per_second[rank] = result->sgemm_flops_per_second();
      if (rank == 0) record.interrupted = result->interrupted();
    });
  }
  for (std::thread& thread : threads) thread.join();
  METP_RETURN_IF_ERROR(FirstCause(statuses));
  return record;
}

}  // namespace metp
