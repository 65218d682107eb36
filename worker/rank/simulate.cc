#include "worker/rank/simulate.h"

#include <array>
#include <map>

#include "proto/support/status_macros.h"
#include "worker/comm/sim/sim_communicator.h"
#include "worker/rank/trainer.h"

namespace metp {

absl::StatusOr<v1::StepReport> SimulateRank(const v1::JobSpec& job, const v1::Plan& plan,
                                            const v1::DeviceProfile& profile, int rank, Timeline* timeline) {
  MemoryLedger ledger;
  sim::SimBackend backend(profile, ledger);
  sim::SimCommunicator communicator(backend, profile, rank, plan.degree());
  METP_ASSIGN_OR_RETURN(const std::unique_ptr<Trainer> trainer,
                        Trainer::Create(job, plan, backend, communicator, nullptr));
  trainer->set_timeline(timeline);
  return trainer->Step();
}

std::vector<int> RepresentativeRanks(const v1::JobSpec& job, int degree) {
  const ModelConfig config = MakeModelConfig(job.model());
  const Zigzag split{job.data().sequence_length(), degree};
  std::map<std::array<int64_t, 6>, int> first;
  std::vector<int> representatives;
  for (int rank = 0; rank < degree; ++rank) {
    const auto chunks = split.Chunks(rank);
    const auto part = [&](int64_t n) { return Part(n, degree, rank).size(); };
    representatives.push_back(first
                                  .try_emplace({chunks[0].size(), chunks[1].size(), part(config.h),
                                                part(config.f), part(config.V), part(config.max_positions)},
                                               rank)
                                  .first->second);
  }
  return representatives;
}

absl::StatusOr<std::vector<v1::StepReport>> SimulateStep(const v1::JobSpec& job, const v1::Plan& plan,
                                                         const v1::DeviceProfile& profile) {
  const std::vector<int> representatives = RepresentativeRanks(job, plan.degree());
  std::vector<v1::StepReport> reports;
  for (int rank = 0; rank < plan.degree(); ++rank) {
    if (representatives[rank] == rank) {
      METP_ASSIGN_OR_RETURN(v1::StepReport report, SimulateRank(job, plan, profile, rank));
      reports.push_back(std::move(report));
    } else {
      reports.push_back(reports[representatives[rank]]);
      reports.back().set_rank(rank);
    }
  }
  return reports;
}

}  // namespace metp
