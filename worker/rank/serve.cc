#include "worker/rank/serve.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <csignal>
#include <iostream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/support/status_macros.h"
#include "worker/checkpoint/file_system.h"
#include "worker/model/plan.h"
#include "worker/rank/link_probe.h"
#include "worker/rank/rendezvous.h"
#include "worker/rank/rendezvous_link.h"
#include "worker/rank/run_rank.h"
#include "worker/rank/signals.h"

namespace metp {

namespace {

// A supervisor sends the start order at once; it has gone astray if this passes.
constexpr auto kStartTimeout = std::chrono::seconds(60);

/// `rank` of a ring of `size` that is called `name` in the rendezvous.
absl::StatusOr<std::unique_ptr<Communicator>> Connect(RankDevice& device, int rank, int size,
                                                      const std::string& name, const std::string& address,
                                                      Rendezvous& all, CommunicatorOptions options = {}) {
  if (size == 1) return std::move(MakeLocalCommunicators(1).front());
  PrefixRendezvous rendezvous(all, name);
  return device.Join(rank, size, address, rendezvous, options);
}

/// What signals and the link need to know of the rank.
struct State {
  std::atomic<bool> training = false, asked_to_leave = false;
  Whereabouts where;
  Unfinished unfinished;
  TraceOrders trace_orders = 0;
};

absl::StatusOr<v1::RankResult> Serve(RankLink& link, State& state) {
  METP_ASSIGN_OR_RETURN(const v1::RankStart start, link.AwaitStart(kStartTimeout));
  const auto dataset = Dataset::Open(start.job());
  if (!dataset.ok()) {
    // What an earlier attempt has read may be out of sight for a while.
    const bool again = !absl::EndsWith(start.attempt(), "/1") && absl::IsNotFound(dataset.status());
    return absl::Status(again ? absl::StatusCode::kUnavailable : dataset.status().code(),
                        absl::StrCat("data.source: ", dataset.status().message()));
  }
  METP_ASSIGN_OR_RETURN(const std::unique_ptr<RankDevice> device, OpenRankDevice(start));
  ChannelRendezvous rendezvous(link);
  const int p = start.plan().degree(), rings = RingsOf(start.plan());
  const int ring = start.rank() / p, place = start.rank() % p;
  METP_ASSIGN_OR_RETURN(
      const std::unique_ptr<Communicator> communicator,
      Connect(*device, place, p, absl::StrCat("ring ", ring, "/"), start.address(), rendezvous));
  METP_ASSIGN_OR_RETURN(const std::unique_ptr<Communicator> across,
                        Connect(*device, ring, rings, absl::StrCat("across ", place, "/"), start.address(),
                                rendezvous, kAcrossRings));
  v1::FromRank message;
  if (p > 1) {
    METP_ASSIGN_OR_RETURN(*message.mutable_link(), MeasureLink(device->backend(), *communicator));
    METP_RETURN_IF_ERROR(link.Send(message));
    device->backend().ledger().ResetPeaks();  // those of training
  }
  message.set_started(
      absl::StrCat("rank ", start.rank(), " of ", RanksOf(start.plan()), ", ", device->backend().Describe()));
  METP_RETURN_IF_ERROR(link.Send(message));
  // Where sending fails: a supervisor that is gone ends this process by itself.
  RankHooks hooks;
  hooks.on_step = [&](const v1::StepReport& report) {
    v1::FromRank step;
    *step.mutable_step() = report;
    link.Send(step).IgnoreError();
  };
  hooks.on_checkpoint = [&](const v1::CheckpointNote& note) {
    v1::FromRank told;
    *told.mutable_checkpoint() = note;
    link.Send(told).IgnoreError();
  };
  hooks.trace_orders = &state.trace_orders;
  hooks.on_trace = [&](const v1::TracePart& part) {
    v1::FromRank traced;
    *traced.mutable_trace() = part;
    link.Send(traced).IgnoreError();
  };
  hooks.on_training = [&] { state.training = true; };
  hooks.asked_to_leave = [&] { return state.asked_to_leave.load(); };
  hooks.where = &state.where;
  hooks.unfinished = &state.unfinished;
  return RunRank(start, *device, {*communicator, rings > 1 ? across.get() : nullptr}, **dataset, hooks);
}

/// SIGTERM.
void Leave(RankLink& link, State& state) {
  state.asked_to_leave = true;
  if (state.training) return;
  v1::FromRank last;
  last.mutable_result()->set_interrupted(true);
  _exit(link.Send(last).ok() ? 0 : 1);
}

/// SIGINT. What other ranks are writing there ends with them.
void TidyUpAndDie(Unfinished& unfinished) {
  if (const std::string folder = unfinished.Take(); !folder.empty())
    RealFileSystem().Remove(folder).IgnoreError();
  DieOf(SIGINT);
}

/// SIGQUIT. Not by iostreams: their locks may be held by whoever hangs.
void SayWhere(const State& state) {
  const std::string line =
      absl::StrCat("metp-rank: ", state.training ? state.where.Describe() : "before its first step", "\n");
  [[maybe_unused]] const ssize_t n = write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace

int ServeCommand(int argc, char** argv) {
  int fd = -1;
  CLI::App app{"One rank, started by its supervisor", "metp-rank serve"};
  app.add_option("--fd", fd, "descriptor of the supervisor's socket")->required();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }

  BlockRankSignals();
  State state;
  RankLink link(
      fd,
      [](const absl::Status& status) {
        std::cerr << "metp-rank: the supervisor is gone: " << status << std::endl;
        _exit(1);
      },
      [&](const v1::TraceOrder& order) {
        state.trace_orders = order.steps() > 0 ? order.steps() : kStopTracing;
      });
  const SignalThread signals([&] { Leave(link, state); }, [&] { SayWhere(state); },
                             [&] { TidyUpAndDie(state.unfinished); });
  v1::FromRank hello;
  hello.mutable_hello()->set_pid(getpid());
  hello.mutable_hello()->set_version(METP_VERSION);
  if (!link.Send(hello).ok()) return 1;

  const absl::StatusOr<v1::RankResult> result = Serve(link, state);
  v1::FromRank last;
  if (result.ok()) {
    *last.mutable_result() = *result;
  } else {
    last.mutable_result()->set_code(static_cast<int>(result.status().code()));
    last.mutable_result()->set_message(std::string(result.status().message()));
  }
  const bool sent = link.Send(last).ok();
  return result.ok() && sent ? 0 : 1;
}

}  // namespace metp
