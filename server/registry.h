#pragma once

// The workers this coordinator knows: who is there, who has gone silent, whose lease is over.
//
//               hello                silence > suspect_after, or disconnected
//   (unknown) ---------> READY ------------------------------------------------> SUSPECT
//       ^                  ^  |                                                     |
//       | leave, or        |  | hello of the same daemon or of a restarted one      | silence > lease
//       | lost too long    |  +<-------------- heard again <------------------------+
//       |                  |                                                        v
//       +------------------+--------------------- hello ------------------------- LOST
//
// Time is the coordinator's steady clock alone: a worker is compared only with when it was itself last heard,
// so clocks that disagree harm nobody. A session is one connection; what a replaced session still says is
// refused. An incarnation is one life of the daemon: when it changes, the ranks of the old one are gone for
// certain (they die with their daemon). Thread-safe.

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "metp/v1/status.pb.h"
#include "metp/v1/worker_service.pb.h"
#include "proto/support/clock.h"
#include "proto/support/mutex.h"
#include "server/config.h"
#include "server/store/store.h"
#include "server/worker_link.h"

namespace metp {

class Registry {
 public:
  using Session = uint64_t;
  using RankId = std::pair<std::string, int>;  // attempt, rank

  Registry(const CoordinatorConfig& config, const Clock& clock) : config_(config), clock_(clock) {}

  struct Connected {
    Session session = 0;
    bool restarted = false;                // another incarnation than before: its earlier ranks are gone
    int64_t acknowledged = 0;              // last event of this incarnation taken for good
    std::shared_ptr<WorkerLink> replaced;  // link of the session this one takes over from, if any
  };
  /// AlreadyExists: a daemon of another incarnation is READY under that name. InvalidArgument: no name or
  /// incarnation.
  absl::StatusOr<Connected> Connect(const v1::WorkerHello& hello, std::shared_ptr<WorkerLink> link)
      METP_EXCLUDES(mutex_);

  /// Workers that an earlier coordinator knew: SUSPECT, and lost if they are not heard within a lease; what it had taken from
  /// them, and who was drained.
  void Load(const StoredState& state) METP_EXCLUDES(mutex_);

  /// Notes a sign of life. False if the session has been replaced, or its worker lost or gone.
  bool Heard(Session session) METP_EXCLUDES(mutex_);
  /// Its connection broke: SUSPECT until it is back or the lease is over. Nothing if the session is not
  /// current.
  void Disconnect(Session session) METP_EXCLUDES(mutex_);
  /// It left in good order.
  void Remove(Session session) METP_EXCLUDES(mutex_);
  /// Ages everyone; returns the workers whose lease ended with this call and why, as a sentence.
  std::vector<std::pair<std::string, std::string>> Expire() METP_EXCLUDES(mutex_);
  /// Names that Remove and Expire have forgotten since the last call.
  std::vector<std::string> TakeForgotten() METP_EXCLUDES(mutex_);
  /// When Expire may next have something to do.
  std::optional<Clock::Time> NextDeadline() const METP_EXCLUDES(mutex_);

  /// Number of the last event of its worker that was taken; it comes again from a coordinator that ends before it is
  /// written.
  int64_t Taken(Session session) const METP_EXCLUDES(mutex_);
  void Take(Session session, int64_t sequence) METP_EXCLUDES(mutex_);
  /// What was taken and is not acknowledged, for the store.
  std::vector<StoreChange::Taken> TakenChanges() const METP_EXCLUDES(mutex_);
  /// Somebody spoke since the last Acknowledge.
  bool Owes() const METP_EXCLUDES(mutex_);
  /// Everything taken is written: tells every worker that spoke since the last call how far, or, `written` false, how far
  /// it was before.
  void Acknowledge(bool written) METP_EXCLUDES(mutex_);

  /// A process of an attempt that is over still runs there: no new ranks until it is gone. False if known
  /// already.
  bool AddStale(const std::string& name, const RankId& rank) METP_EXCLUDES(mutex_);
  void ClearStale(const std::string& name, const RankId& rank) METP_EXCLUDES(mutex_);

  /// Name of the session's worker; empty if the session is not current.
  std::string NameOf(Session session) const METP_EXCLUDES(mutex_);
  /// Sends to that worker's current session; dropped if there is none (it is told again when it is back).
  void Send(const std::string& name, v1::ToWorker message) METP_EXCLUDES(mutex_);
  /// Closes every session.
  void CloseAll(const absl::Status& status) METP_EXCLUDES(mutex_);

  /// A drained worker takes no new ranks. By name: it stays so when it leaves and comes back.
  void SetDrained(const std::string& name, bool drained, const std::string& reason) METP_EXCLUDES(mutex_);

  bool IsDrained(const std::string& name) const METP_EXCLUDES(mutex_);
  /// The worker lets its ranks leave, and will go itself, as far as one can see: no new ranks for leaving_for, unless
  /// SetDrained says that it takes them again.
  void SetLeaving(const std::string& name) METP_EXCLUDES(mutex_);

  /// READY and SUSPECT ones of a kind (cpu or gpu) that are not drained; those that are.
  int registered(v1::JobSpec::Device kind) const METP_EXCLUDES(mutex_);
  int drained(v1::JobSpec::Device kind) const METP_EXCLUDES(mutex_);
  bool Ready(const std::string& worker) const METP_EXCLUDES(mutex_);
  /// Changes whenever Schedulable or the two counts may have.
  uint64_t schedule_version() const METP_EXCLUDES(mutex_);
  /// A rank on `worker` measured its links to the ring's neighbours: they go into its profile, as links inside the node
  /// or, `across_nodes`, between nodes: the best of the last few.
  void SetLink(const std::string& worker, const v1::Link& link, bool across_nodes) METP_EXCLUDES(mutex_);
  bool Knows(const std::string& worker) const METP_EXCLUDES(mutex_);
  /// The node of a worker; empty: not known.
  std::string NodeOf(const std::string& worker) const METP_EXCLUDES(mutex_);
  /// READY ones of a kind, connected, not drained and without stale processes; in natural order of names (cpu-2 before
  /// cpu-10).
  std::vector<std::string> Schedulable(v1::JobSpec::Device kind) const METP_EXCLUDES(mutex_);
  /// All, in natural order of names; job and rank are left to the caller.
  std::vector<v1::WorkerStatus> List() const METP_EXCLUDES(mutex_);

 private:
  struct Worker {
    v1::WorkerHello hello;
    v1::WorkerStatus::State state = v1::WorkerStatus::READY;
    Session session = 0;
    std::shared_ptr<WorkerLink> link;  // null while disconnected
    Clock::Time last_heard;
    int64_t taken = 0, acknowledged = 0;  // events
    std::set<RankId> stale;
    std::optional<Clock::Time> leaving_until;
    std::vector<v1::Link> links_in_node, links_across_nodes;  // as its ranks measured them lately
  };
  bool Leaving(const Worker& worker) const METP_REQUIRES(mutex_) {
    return worker.leaving_until.has_value() && clock_.Now() < *worker.leaving_until;
  }
  /// Sets the state; a change is one for the scheduler.
  void Become(Worker& worker, v1::WorkerStatus::State state) METP_REQUIRES(mutex_);
  Worker* Current(Session session) METP_REQUIRES(mutex_);
  const Worker* Current(Session session) const METP_REQUIRES(mutex_);

  const CoordinatorConfig& config_;
  const Clock& clock_;
  mutable Mutex mutex_;
  std::map<std::string, Worker> workers_ METP_GUARDED_BY(mutex_);
  std::vector<std::string> forgotten_ METP_GUARDED_BY(mutex_);
  std::map<Session, std::string> by_session_ METP_GUARDED_BY(mutex_);   // current ones
  std::set<std::string> spoke_ METP_GUARDED_BY(mutex_);                 // and wait for an acknowledgement
  std::map<std::string, std::string> drained_ METP_GUARDED_BY(mutex_);  // why, by worker
  uint64_t schedule_version_ METP_GUARDED_BY(mutex_) = 1;
  Session next_session_ METP_GUARDED_BY(mutex_) = 1;
};

/// Orders names by their numbers where they have numbers.
bool NaturalLess(const std::string& a, const std::string& b);

}  // namespace metp
