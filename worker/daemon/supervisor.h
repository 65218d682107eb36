#pragma once

// Starts, feeds, stops and buries rank processes. Commands come from the session; everything the ranks say
// goes to the outbox. One rank process per (attempt, rank); a command for one that is not here is answered
// with its end.
//
// Ending: a rank whose attempt is over gets SIGINT; one that is taken to hang SIGQUIT, to say where it is; one that leaves,
// because the worker does or the coordinator wants its worker for itself, SIGTERM, to end its step and write a checkpoint.
// After the grace of each, SIGKILL. A rank counts as ended only when its process is gone.
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
#include "worker/daemon/metrics.h"
#include "worker/daemon/outbox.h"
#include "worker/rank/process.h"

namespace metp {

class Supervisor {
 public:
  Supervisor(const WorkerConfig& config, const Clock& clock, Outbox& outbox, WorkerMetrics& metrics);
  /// Kills what is left.
  ~Supervisor();

  void Start(v1::StartRank command) METP_EXCLUDES(mutex_);
  void Stop(v1::StopRank command) METP_EXCLUDES(mutex_);
  void Interrupt(v1::InterruptRank command) METP_EXCLUDES(mutex_);
  void Deliver(v1::RankValue command) METP_EXCLUDES(mutex_);
  /// A session begins: values asked for in an earlier one may have been lost on the way; asks again.
  void AskAgain() METP_EXCLUDES(mutex_);

  /// Ranks with a process.
  std::vector<v1::RankKey> Ranks() const METP_EXCLUDES(mutex_);
  /// Lets every rank leave because the worker goes, refuses new ones, returns when all processes are gone.
  void Leave() METP_EXCLUDES(mutex_);

 private:
  using Key = std::pair<std::string, int>;  // attempt, rank
  struct Rank {
    std::string job;
    std::unique_ptr<RankProcess> process;
    std::optional<v1::RankResult> result;
    std::set<std::string> asked;  // keys of the rendezvous that it waits for
    bool stop_asked = false;      // by the coordinator
    bool leave_asked = false, killed = false;
    std::optional<Clock::Time> kill_at;
    int64_t kills_before = 0;      // by the kernel for want of memory, when it started
    std::optional<RankExit> exit;  // its process is gone: to be buried
  };

  void Run() METP_EXCLUDES(mutex_);
  void Post(std::function<void()> task) METP_EXCLUDES(mutex_);
  void DoStart(const v1::StartRank& command) METP_EXCLUDES(mutex_);
  void DoStop(const v1::StopRank& command) METP_EXCLUDES(mutex_);
  void DoInterrupt(const v1::InterruptRank& command) METP_EXCLUDES(mutex_);
  void DoDeliver(const v1::RankValue& command) METP_EXCLUDES(mutex_);
  void LetAllLeave() METP_EXCLUDES(mutex_);
  void LetLeave(Rank& rank) METP_REQUIRES(mutex_);
  void KillOverdue() METP_EXCLUDES(mutex_);
  void Bury() METP_EXCLUDES(mutex_);
  std::optional<Clock::Time> NextKill() const METP_REQUIRES(mutex_);
  bool AnyToBury() const METP_REQUIRES(mutex_);
  void OnMessage(const Key& key, const v1::FromRank& message) METP_EXCLUDES(mutex_);
  void OnExit(const Key& key, const RankExit& exit) METP_EXCLUDES(mutex_);
  v1::RankEnded Describe(const Rank& rank) const METP_REQUIRES(mutex_);
  void PushEnd(const Key& key, v1::RankEnded ended);

  const WorkerConfig& config_;
  const Clock& clock_;
  Outbox& outbox_;
  WorkerMetrics& metrics_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::vector<std::function<void()>> tasks_ METP_GUARDED_BY(mutex_);
  std::map<Key, Rank> ranks_ METP_GUARDED_BY(mutex_);
  bool leaving_ METP_GUARDED_BY(mutex_) = false;
  bool quit_ METP_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace metp
