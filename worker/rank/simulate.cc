#include "worker/rank/simulate.h"

#include <array>
#include <map>

#include "proto/support/status_macros.h"
#include "worker/backend/sim/profile.h"
#include "worker/comm/sim/sim_communicator.h"
#include "worker/model/plan.h"
#include "worker/rank/trainer.h"

namespace metp {

namespace {

absl::StatusOr<v1::StepReport> Simulate(const v1::JobSpec& job, const v1::Plan& plan,
                                        const v1::DeviceProfile& profile, int rank, Timeline* timeline) {
  MemoryLedger ledger;
  v1::DeviceProfile own = profile;
  own.set_host_bytes_per_second(ShareOfHost(profile, RanksOf(plan)).bytes_per_second);
  sim::SimBackend backend(own, ledger);
  sim::SimCommunicator communicator(backend, sim::RingLink(profile, plan.degree()), rank, plan.degree());
  sim::SimCommunicator across(backend, sim::RingLink(profile, RanksOf(plan)), 0, RingsOf(plan));
  METP_ASSIGN_OR_RETURN(const std::unique_ptr<Trainer> trainer,
                        Trainer::Create(job, plan, backend, communicator, &across, nullptr));
  trainer->set_timeline(timeline);
  return trainer->Step();
}

/// What grows with every micro-batch after the second as it grew from the first to the second.
void Extrapolate(const v1::StepReport& one, double more, v1::StepReport& two) {
  const auto extend = [&](double from, double to) { return to + more * (to - from); };
  two.set_step_seconds(extend(one.step_seconds(), two.step_seconds()));
  two.set_model_flops(extend(one.model_flops(), two.model_flops()));
  two.set_tokens(
      static_cast<int64_t>(extend(static_cast<double>(one.tokens()), static_cast<double>(two.tokens()))));
  two.set_sent_bytes(static_cast<int64_t>(
      extend(static_cast<double>(one.sent_bytes()), static_cast<double>(two.sent_bytes()))));
  v1::HostTimes& host = *two.mutable_host();
  host.set_copy_seconds(extend(one.host().copy_seconds(), host.copy_seconds()));
  host.set_update_seconds(extend(one.host().update_seconds(), host.update_seconds()));
  host.set_exposed_seconds(extend(one.host().exposed_seconds(), host.exposed_seconds()));
  for (auto& [name, pass] : *two.mutable_passes()) {
    const v1::PassTimes& first = one.passes().at(name);
    pass.set_compute_seconds(extend(first.compute_seconds(), pass.compute_seconds()));
    pass.set_communication_seconds(extend(first.communication_seconds(), pass.communication_seconds()));
    pass.set_exposed_seconds(extend(first.exposed_seconds(), pass.exposed_seconds()));
  }
}

}  // namespace

absl::StatusOr<v1::StepReport> SimulateRank(const v1::JobSpec& job, const v1::Plan& plan,
                                            const v1::DeviceProfile& profile, int rank, Timeline* timeline) {
  const int rings = RingsOf(plan), unit = rings * job.train().micro_batch();  // sequences
  const int batches = job.train().sequences_per_step() / unit;
  if (batches <= 2) return Simulate(job, plan, profile, rank, timeline);
  v1::JobSpec fewer = job;  // all micro-batches after the first are alike
  fewer.mutable_train()->set_sequences_per_step(unit);
  METP_ASSIGN_OR_RETURN(const v1::StepReport one, Simulate(fewer, plan, profile, rank, nullptr));
  fewer.mutable_train()->set_sequences_per_step(2 * unit);
  METP_ASSIGN_OR_RETURN(v1::StepReport report, Simulate(fewer, plan, profile, rank, timeline));
  Extrapolate(one, batches - 2, report);
  return report;
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
