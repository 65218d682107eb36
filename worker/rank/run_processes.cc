// The supervisor of `metp-rank run --comm gloo` and `--comm nccl`: starts the ranks, is their rendezvous, collects what they
// report.

#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/support/mutex.h"
#include "proto/support/status_macros.h"
#include "worker/model/plan.h"
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

constexpr char kVisibleGpus[] = "CUDA_VISIBLE_DEVICES";

/// The GPU of a rank, as CUDA names it to a process: the rank-th of those that this one may use.
absl::StatusOr<std::string> GpuOf(int rank) {
  const char* const visible = std::getenv(kVisibleGpus);
  if (visible == nullptr) return absl::StrCat(rank);
  const std::vector<std::string> gpus = absl::StrSplit(visible, ',', absl::SkipWhitespace());
  if (static_cast<size_t>(rank) < gpus.size()) return gpus[rank];
  return absl::UnavailableError(absl::StrCat(kVisibleGpus, "='", visible, "' names ", gpus.size(),
                                             gpus.size() == 1 ? " GPU" : " GPUs", ", and rank ", rank,
                                             " needs one of its own"));
}

class Supervisor {
 public:
  Supervisor(const RunRequest& request, const OnStep& on_step)
      : request_(request),
        on_step_(on_step),
        ranks_(RanksOf(request.plan)),
        ended_(ranks_),
        results_(ranks_),
        processes_(ranks_) {
    record_.steps.resize(ranks_);
    record_.sgemm_flops_per_second.resize(ranks_);
  }

  ~Supervisor() {
    if (request_.leave != nullptr) request_.leave->Listen(nullptr);
    StopAll();
  }

  absl::StatusOr<RunRecord> Run(const std::string& program) {
    for (int rank = 0; rank < ranks_; ++rank) {
      METP_ASSIGN_OR_RETURN(auto process, Spawn(program, rank));
      MutexLock lock(mutex_);
      processes_[rank] = std::move(process);
    }
    if (request_.leave != nullptr) {
      request_.leave->Listen([this] {
        for (int rank = 0; rank < ranks_; ++rank) ProcessOf(rank)->Terminate();
      });
    }
    // A rank that is gone already is seen by its exit.
    for (int rank = 0; rank < ranks_; ++rank) Order(rank).IgnoreError();
    AwaitEndOrFailure();
    StopAll();
    std::vector<absl::Status> statuses;
    {
      MutexLock lock(mutex_);
      for (const auto& ended : ended_) statuses.push_back(ended.value_or(absl::OkStatus()));
    }
    METP_RETURN_IF_ERROR(FirstCause(statuses));
    return std::move(record_);
  }

 private:
  absl::StatusOr<std::unique_ptr<RankProcess>> Spawn(const std::string& program, int rank) {
    RankCommand command;
    command.program = program;
    if (request_.plan.device() == v1::JobSpec::DEVICE_GPU) {
      METP_ASSIGN_OR_RETURN(std::string gpu, GpuOf(rank));
      command.environment.emplace_back(kVisibleGpus, std::move(gpu));
    }
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
    start.set_attempt(absl::StrCat("run-", getpid()));
    start.set_address("127.0.0.1");
    start.set_measure_sgemm(true);
    return ProcessOf(rank)->Send(message);
  }

  /// Never null once Order has been called for the rank, and until the supervisor goes.
  RankProcess* ProcessOf(int rank) METP_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return processes_[rank].get();
  }

  void StopAll() {
    std::vector<RankProcess*> processes;
    {
      MutexLock lock(mutex_);
      stopping_ = true;
      for (const auto& process : processes_) {
        if (process) processes.push_back(process.get());
      }
    }
    for (RankProcess* process : processes) process->Kill();
    for (RankProcess* process : processes) process->Wait();
  }

  void OnMessage(int rank, const v1::FromRank& message) {
    if (message.has_step()) {
      {
        MutexLock lock(mutex_);
        record_.steps[rank].push_back(message.step());
      }
      if (rank == 0) on_step_(message.step());  // may block: not under the lock
      return;
    }
    MutexLock lock(mutex_);
    if (message.has_put()) {
      const absl::Status put = hub_.Put(message.put().key(), message.put().value());
      if (!put.ok()) End(rank, put);
    } else if (message.has_get()) {
      // Answered under the lock, by whichever message brings the key; the rank has its start order, so its process is there.
      hub_.Get(message.get().key(), [this, rank, key = message.get().key()](const std::string& value) {
        v1::ToRank reply;
        reply.mutable_value()->set_key(key);
        reply.mutable_value()->set_value(value);
        Reply(rank, reply);
      });
    } else if (message.has_result()) {
      results_[rank] = message.result();
    }
  }

  void Reply(int rank, const v1::ToRank& reply) METP_ATTRIBUTE(no_thread_safety_analysis) {
    processes_[rank]->Send(reply).IgnoreError();  // a rank that is gone is seen by its exit
  }

  void OnExit(int rank, const RankExit& exit) {
    MutexLock lock(mutex_);
    const std::optional<v1::RankResult>& result = results_[rank];
    if (result && result->code() != 0) {
      End(rank, absl::Status(static_cast<absl::StatusCode>(result->code()), result->message()));
    } else if (result && exit.clean()) {
      record_.sgemm_flops_per_second[rank] = result->sgemm_flops_per_second();
      record_.interrupted = record_.interrupted || result->interrupted();
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
  const int ranks_;

  Mutex mutex_;
  CondVar changed_;
  RendezvousHub hub_ METP_GUARDED_BY(mutex_);
  RunRecord record_;  // guarded by mutex_ while ranks run
  std::vector<std::optional<absl::Status>> ended_ METP_GUARDED_BY(mutex_);
  std::vector<std::optional<v1::RankResult>> results_ METP_GUARDED_BY(mutex_);
  bool stopping_ METP_GUARDED_BY(mutex_) = false;  // what ends from now on was ended by us
  std::vector<std::unique_ptr<RankProcess>> processes_
      METP_GUARDED_BY(mutex_);  // all spawned before the first start order
};

}  // namespace

absl::StatusOr<RunRecord> RunProcesses(const RunRequest& request, const std::string& program,
                                       const OnStep& on_step) {
  METP_RETURN_IF_ERROR(
      Dataset::Open(request.job).status());  // bad data is said once, before anything is started
  return Supervisor(request, on_step).Run(program);
}

}  // namespace metp
