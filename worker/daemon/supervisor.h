#pragma once

// Starts, feeds, stops and buries rank processes. Commands come from the session; everything the ranks say
// goes to the outbox. One rank process per (attempt, rank); a command for one that is not here is answered
// with its end.
//
// Ending: a rank whose attempt is over gets SIGINT; one that is taken to hang SIGQUIT, to say where it is; one that leaves,
// because the worker does or the coordinator wants its worker for itself, SIGTERM, to end its step and write a checkpoint.
// After the grace of each, SIGKILL. A rank counts as ended only when its process is gone, and on a GPU when what it held of the
// device's memory is free again; none starts there before that is so. What the device reports meanwhile is told with its end.
//
// Threads: commands are queued from any thread and carried out on the supervisor's own; reports of ranks are
// forwarded on the thread of their process.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "metp/v1/worker_service.pb.h"
#include "proto/support/clock.h"
#include "proto/support/mutex.h"
#include "worker/daemon/config.h"
#include "worker/daemon/gpu_watch.h"
#include "worker/daemon/metrics.h"
#include "worker/daemon/outbox.h"
#include "worker/rank/process.h"

namespace metp {

class Supervisor {
 public:
  /// `gpu`: of a worker that has one; the supervisor's own from here on, but for what any thread may ask.
  Supervisor(const WorkerConfig& config, const Clock& clock, Outbox& outbox, WorkerMetrics& metrics,
             GpuWatch* gpu = nullptr);
  /// Kills what is left.
  ~Supervisor();

  /// Called with the reason when the device does not answer any more, maybe repeatedly; before the first rank.
  void OnGpuLost(std::function<void(const std::string&)> told) { gpu_lost_ = std::move(told); }

  void Start(v1::StartRank command) METP_EXCLUDES(mutex_);
  void Stop(v1::StopRank command) METP_EXCLUDES(mutex_);
  void Interrupt(v1::InterruptRank command) METP_EXCLUDES(mutex_);
  void Deliver(v1::RankValue command) METP_EXCLUDES(mutex_);
  void Trace(v1::TraceRank command) METP_EXCLUDES(mutex_);
  /// A session begins: values asked for in an earlier one may have been lost on the way; asks again.
  void AskAgain() METP_EXCLUDES(mutex_);

  /// Ranks with a process, and those that wait for the device's memory to have one.
  std::vector<v1::RankKey> Ranks() const METP_EXCLUDES(mutex_);
  /// Lets every rank leave because the worker goes, refuses new ones, returns when all processes are gone.
  void Leave() METP_EXCLUDES(mutex_);

 private:
  using Key = std::pair<std::string, int>;  // attempt, rank
  struct Rank {
    std::string job;
    std::optional<v1::StartRank> waiting;  // to be started when the device's memory is free
    std::unique_ptr<RankProcess> process;  // null while it waits
    std::optional<v1::RankResult> result;
    std::set<std::string> asked;  // keys of the rendezvous that it waits for
    bool stop_asked = false;      // by the coordinator
    bool leave_asked = false, killed = false;
    std::optional<Clock::Time> kill_at;
    int64_t kills_before = 0;         // by the kernel for want of memory, when it started
    std::optional<RankExit> exit;     // its process is gone: to be buried when the device's memory is free
    Clock::Time look_at, give_up_at;  // of both: when to look at the memory next, and for the last time
  };

  void Run() METP_EXCLUDES(mutex_);
  void Post(std::function<void()> task) METP_EXCLUDES(mutex_);
  void DoStart(const v1::StartRank& command) METP_EXCLUDES(mutex_);
  void DoStop(const v1::StopRank& command) METP_EXCLUDES(mutex_);
  void DoInterrupt(const v1::InterruptRank& command) METP_EXCLUDES(mutex_);
  void DoDeliver(const v1::RankValue& command) METP_EXCLUDES(mutex_);
  void DoTrace(const v1::TraceRank& command) METP_EXCLUDES(mutex_);
  void Settle() METP_EXCLUDES(mutex_);
  std::vector<Key> ToSettle() const METP_EXCLUDES(mutex_);
  absl::Status MemoryIsFreeFor(const Key& key) const METP_EXCLUDES(mutex_);
  void Spawn(const Key& key) METP_EXCLUDES(mutex_);
  void Forget(const Key& key, v1::RankEnded ended) METP_EXCLUDES(mutex_);
  void Bury(const Key& key, const absl::Status& memory) METP_EXCLUDES(mutex_);
  void LetAllLeave() METP_EXCLUDES(mutex_);
  void LetLeave(Rank& rank) METP_REQUIRES(mutex_);
  void KillOverdue() METP_EXCLUDES(mutex_);
  std::optional<Clock::Time> NextDue() const METP_REQUIRES(mutex_);
  void OnMessage(const Key& key, const v1::FromRank& message) METP_EXCLUDES(mutex_);
  void OnExit(const Key& key, const RankExit& exit) METP_EXCLUDES(mutex_);
  v1::RankEnded Describe(const Rank& rank) const METP_REQUIRES(mutex_);
  void AddDeviceErrors(const absl::Status& memory, v1::RankEnded& ended) const;
  void PushEnd(const Key& key, v1::RankEnded ended);

  const WorkerConfig& config_;
  const Clock& clock_;
  Outbox& outbox_;
  WorkerMetrics& metrics_;
  GpuWatch* const gpu_;  // used by the supervisor's thread only
  std::function<void(const std::string&)> gpu_lost_ = [](const std::string&) {};
  mutable Mutex mutex_;
  CondVar changed_;
  std::vector<std::function<void()>> tasks_ METP_GUARDED_BY(mutex_);
  std::map<Key, Rank> ranks_ METP_GUARDED_BY(mutex_);
  bool leaving_ METP_GUARDED_BY(mutex_) = false;
  bool quit_ METP_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace metp
