// The supervisor of `metp-rank run --comm gloo`: starts the ranks, is their rendezvous, collects what they
// report.

#include <iostream>
#include <optional>

#include "proto/support/mutex.h"
#include "proto/support/status_macros.h"
#include "worker/rank/process.h"
#include "worker/rank/rendezvous.h"
#include "worker/rank/run.h"

namespace metp {

namespace {

// A neighbour's broken ring is often seen before the death that broke it: how long to wait for the cause.
constexpr auto kCauseGrace = std::chrono::seconds(2);

bool IsConsequence(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsCancelled(status);
}

class Supervisor {
 public:
  Supervisor(const RunRequest& request, const OnStep& on_step)
      : request_(request),
        on_step_(on_step),
        p_(request.plan.degree()),
        ended_(p_),
        results_(p_),
        processes_(p_) {
    record_.steps.resize(p_);
    record_.sgemm_flops_per_second.resize(p_);
  }

  absl::StatusOr<RunRecord> Run(const std::string& program) {
    for (int rank = 0; rank < p_; ++rank) {
      METP_ASSIGN_OR_RETURN(processes_[rank], Spawn(program, rank));
    }
    for (int rank = 0; rank < p_; ++rank) METP_RETURN_IF_ERROR(Order(rank));
    AwaitEndOrFailure();
    for (const auto& process : processes_) process->Kill();
    for (const auto& process : processes_) process->Wait();
    std::vector<absl::Status> statuses;
    {
      MutexLock lock(mutex_);
      for (const auto& ended : ended_) statuses.push_back(ended.value_or(absl::OkStatus()));
    }
    processes_.clear();
    METP_RETURN_IF_ERROR(FirstCause(statuses));
    return std::move(record_);
  }

 private:
  absl::StatusOr<std::unique_ptr<RankProcess>> Spawn(const std::string& program, int rank) {
    RankCommand command;
    command.program = program;
    RankCallbacks callbacks;
    callbacks.on_message = [this, rank](const v1::FromRank& message) { OnMessage(rank, message); };
    callbacks.on_output = [rank](std::string_view line) {
      std::cerr << "[rank " << rank << "] " << line << "\n";
    };
    callbacks.on_exit = [this, rank](const RankExit& exit) { OnExit(rank, exit); };
    return RankProcess::Start(std::move(command), std::move(callbacks));
  }

  absl::Status Order(int rank) {
    v1::ToRank message;
    v1::RankStart& start = *message.mutable_start();
    *start.mutable_job() = request_.job;
    *start.mutable_plan() = request_.plan;
    start.set_rank(rank);
    start.set_threads(request_.threads);
    start.set_attempt("run");
    start.set_address("127.0.0.1");
    start.set_measure_sgemm(true);
    return processes_[rank]->Send(message);
  }

  void OnMessage(int rank, const v1::FromRank& message) {
    MutexLock lock(mutex_);
    switch (message.kind_case()) {
      case v1::FromRank::kPut:
        if (absl::Status put = hub_.Put(message.put().key(), message.put().value()); !put.ok())
          End(rank, put);
        break;
      case v1::FromRank::kGet:
        hub_.Get(message.get().key(), [this, rank, key = message.get().key()](const std::string& value) {
          v1::ToRank reply;
          reply.mutable_value()->set_key(key);
          reply.mutable_value()->set_value(value);
          // A rank asks only once it has been given its start order, so its process is known. One that is
          // gone is seen by its exit.
          processes_[rank]->Send(reply).IgnoreError();
        });
        break;
      case v1::FromRank::kStep:
        record_.steps[rank].push_back(message.step());
        if (rank == 0) on_step_(message.step());
        break;
      case v1::FromRank::kResult:
        results_[rank] = message.result();
        break;
      default:
        break;
    }
  }

  void OnExit(int rank, const RankExit& exit) {
    MutexLock lock(mutex_);
    const std::optional<v1::RankResult>& result = results_[rank];
    if (result && result->code() != 0) {
      End(rank, absl::Status(static_cast<absl::StatusCode>(result->code()), result->message()));
    } else if (result && exit.clean()) {
      record_.sgemm_flops_per_second[rank] = result->sgemm_flops_per_second();
      End(rank, absl::OkStatus());
    } else if (!stopping_) {
      End(rank, absl::InternalError(exit.Describe()));
    }
  }

  void End(int rank, absl::Status status) METP_REQUIRES(mutex_) {
    if (!ended_[rank]) ended_[rank] = std::move(status);
    changed_.NotifyAll();
  }

  /// Until all ranks are done, or one has failed and there is a cause to show (or none came).
  void AwaitEndOrFailure() {
    MutexLock lock(mutex_);
    std::optional<std::chrono::steady_clock::time_point> give_up;
    while (true) {
      bool all = true, cause = false, failed = false;
      for (const auto& ended : ended_) {
        all = all && ended.has_value();
        if (!ended || ended->ok()) continue;
        failed = true;
        cause = cause || !IsConsequence(*ended);
      }
      if (all || cause) break;
      if (failed && !give_up) give_up = std::chrono::steady_clock::now() + kCauseGrace;
      if (!give_up) {
        changed_.Wait(mutex_);
      } else if (!changed_.WaitUntil(mutex_, *give_up)) {
        break;
      }
    }
    stopping_ = true;
  }

  const RunRequest& request_;
  const OnStep& on_step_;
  const int p_;

  Mutex mutex_;
  CondVar changed_;
  RendezvousHub hub_ METP_GUARDED_BY(mutex_);
  RunRecord record_;  // guarded by mutex_ while ranks run
  std::vector<std::optional<absl::Status>> ended_ METP_GUARDED_BY(mutex_);
  std::vector<std::optional<v1::RankResult>> results_ METP_GUARDED_BY(mutex_);
  bool stopping_ METP_GUARDED_BY(mutex_) = false;        // what ends from now on was ended by us
  std::vector<std::unique_ptr<RankProcess>> processes_;  // all spawned before the first start order
};

}  // namespace

absl::StatusOr<RunRecord> RunGloo(const RunRequest& request, const std::string& program,
                                  const OnStep& on_step) {
  METP_RETURN_IF_ERROR(
      Dataset::Open(request.job).status());  // bad data is said once, before anything is started
  return Supervisor(request, on_step).Run(program);
}

}  // namespace metp
