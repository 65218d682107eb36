#include "worker/rank/probe.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <thread>

#include "worker/backend/backend.h"
#include "worker/backend/sim/profile.h"
#include "worker/comm/communicator.h"
#include "worker/rank/device_probe.h"
#include "worker/rank/link_probe.h"
#include "worker/rank/rank_device.h"
#include "worker/rank/rendezvous.h"

namespace metp {

namespace {

constexpr ProbeEffort kCpu = {
    .side = {1024, 1024}, .rows = {1024, 1024}, .pointwise = {1024, 1024}, .heads = 4};

void KeepSlower(std::vector<Sample>& samples, const std::vector<Sample>& other) {
  for (size_t i = 0; i < samples.size(); ++i)
    samples[i].seconds = std::max(samples[i].seconds, other[i].seconds);
}

void KeepSlower(v1::Link& link, const v1::Link& other) {
  link.set_latency_seconds(std::max(link.latency_seconds(), other.latency_seconds()));
  link.set_bytes_per_second(std::min(link.bytes_per_second(), other.bytes_per_second()));
}

Measured Slowest(const std::vector<Measured>& ranks) {
  Measured slowest = ranks.front();
  for (const Measured& rank : ranks) {
    KeepSlower(slowest.gemm, rank.gemm);
    KeepSlower(slowest.attention_forward, rank.attention_forward);
    KeepSlower(slowest.attention_backward, rank.attention_backward);
    slowest.memory.seconds = std::max(slowest.memory.seconds, rank.memory.seconds);
    slowest.launch = std::max(slowest.launch, rank.launch);
    KeepSlower(slowest.link, rank.link);
  }
  return slowest;
}

/// body(rank, communicator) on a thread for each rank. Throws the first StepError.
void OnEveryRank(int ranks, ProbedLink link, const std::function<void(int, Communicator&)>& body) {
  std::vector<std::unique_ptr<Communicator>> communicators(ranks);
  if (ranks == 1 || link == ProbedLink::kMemory) communicators = MakeLocalCommunicators(ranks);
  LocalRendezvous rendezvous;
  std::vector<std::optional<StepError>> errors(ranks);
  std::vector<std::thread> runners;
  for (int rank = 0; rank < ranks; ++rank) {
    runners.emplace_back([&, rank] {
      std::unique_ptr<Communicator>& communicator = communicators[rank];
      try {
        if (communicator == nullptr) {
          auto connected = MakeGlooCommunicator(rank, ranks, "127.0.0.1", rendezvous);
          ThrowIfError(connected.status());
          communicator = *std::move(connected);
        }
        body(rank, *communicator);
        ThrowIfError(communicator->Barrier());  // nobody leaves while a neighbour still needs the ring
      } catch (const StepError& error) {
        if (communicator != nullptr) communicator->Abort(error.status());
        errors[rank] = error;
      } catch (const std::bad_alloc&) {
        const absl::Status full = absl::ResourceExhaustedError("the host has no memory left to measure in");
        if (communicator != nullptr) communicator->Abort(full);
        errors[rank] = StepError(full);
      }
    });
  }
  for (std::thread& runner : runners) runner.join();
  for (const auto& error : errors) {
    if (error) throw StepError(*error);
  }
}

}  // namespace

v1::DeviceProfile ProbeThisMachine(int ranks, int threads, ProbedLink link) {
  std::vector<Measured> measured(ranks);
  OnEveryRank(ranks, link, [&](int rank, Communicator& communicator) {
    const absl::StatusOr<std::unique_ptr<RankDevice>> device = OpenRankDevice({.threads = threads});
    ThrowIfError(device.status());
    measured[rank] = MeasureDevice((*device)->backend(), communicator, kCpu);
  });
  if (ranks == 1 && link == ProbedLink::kLoopback) {  // what neighbours on this machine would have
    OnEveryRank(2, link, [&](int rank, Communicator& communicator) {
      MemoryLedger ledger;
      const std::unique_ptr<Backend> backend = MakeCpuBackend(1, ledger);
      const absl::StatusOr<v1::Link> between = MeasureLink(*backend, communicator);
      ThrowIfError(between.status());
      if (rank == 0) measured[0].link = *between;
    });
  }
  const Measured slowest = Slowest(measured);

  v1::DeviceProfile profile;
  profile.set_name("local");
  profile.set_source("measured with " + std::to_string(ranks) + (ranks == 1 ? " rank of " : " ranks of ") +
                     std::to_string(threads) + (threads == 1 ? " thread" : " threads") + " at once");
  profile.set_precision(v1::DeviceProfile::PRECISION_FP32);
  profile.set_memory_bytes(MachineMemoryBytes() / ranks);
  profile.set_reserved_bytes(0);
  profile.set_one_memory(true);
  SetRates(slowest, profile);
  *profile.mutable_link() = slowest.link;
  profile.set_devices_per_node(ranks);
  NormalizeProfile(profile);
  return profile;
}

}  // namespace metp
