#pragma once

// What happens when: takes what clients and workers say, changes jobs and workers accordingly, and tells
// workers what to do. Free of gRPC and of threads: every method but the constructor runs on the one thread of
// the event loop, and none blocks on anything but the store.

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "metp/v1/job_service.pb.h"
#include "metp/v1/worker_service.pb.h"
#include "proto/support/clock.h"
#include "server/hang_watch.h"
#include "server/job_table.h"
#include "server/planner/planner.h"
#include "server/registry.h"
#include "server/rendezvous.h"
#include "server/scheduler/scheduler.h"
#include "server/store/store.h"
#include "server/trace_session.h"

namespace metp {

class Controller {
 public:
  /// `jobs` writes to the same store. All must outlive the controller.
  Controller(const CoordinatorConfig& config, JobTable& jobs, Registry& workers, Store& store,
             const Clock& clock)
      : config_(config),
        jobs_(jobs),
        workers_(workers),
        store_(store),
        clock_(clock),
        scheduler_(config, jobs, workers),
        hangs_(config),
        last_tick_(clock.Now()) {}

  /// Who plans queued jobs again; `done` must come as a call on this controller's thread, later. Without one they wait.
  using PlanElsewhere =
      std::function<void(v1::JobSpec, Workers, std::function<void(absl::StatusOr<Choice>)> done)>;
  void set_planner(PlanElsewhere planner) { planner_ = std::move(planner); }

  /// What an earlier coordinator had written. Once, before anything else. Its workers' ranks count as there until the
  /// workers say otherwise, or are lost.
  void Load(const StoredState& state);

  // ---- clients ----

  /// A submission has two halves, and between them it is planned elsewhere (planning_desk.h). The first normalizes and
  /// validates, and says what to plan on. InvalidArgument: the job breaks a rule. AlreadyExists: the request id made
  /// another job.
  struct Submission {
    v1::JobSpec job;  // normalized
    Workers workers;
    std::optional<v1::JobStatus> repeated;  // this request has been taken before: there is nothing to plan
  };
  absl::StatusOr<Submission> BeginSubmit(const std::string& request_id, v1::JobSpec job);
  /// The second queues `job` with its plan, unless the request was taken meanwhile.
  absl::StatusOr<v1::JobStatus> Submit(const std::string& request_id, const v1::JobSpec& job,
                                       const Choice& choice);
  /// `reference`: see JobTable::Find; errors of Find and JobTable::Cancel.
  absl::StatusOr<v1::JobStatus> Cancel(const std::string& reference);
  /// The timelines of the job's next steps are ordered; they, or why there are none, go to `session` for as long as it is held
  /// elsewhere.
  void Trace(const std::string& id, const std::shared_ptr<TraceSession>& session);
  /// NotFound: no such worker. Unavailable: the store refuses.
  absl::Status Drain(const v1::DrainWorkerRequest& request);

  // ---- workers ----

  /// A daemon says hello; on success it has been welcomed and told about ranks that it should not, or not
  /// yet, have.
  absl::StatusOr<Registry::Session> Connect(const v1::WorkerHello& hello, std::shared_ptr<WorkerLink> link);
  /// FailedPrecondition: the session has been replaced, or its lease was over: it must dial again.
  /// Unavailable: the store did not take it: it must dial again and repeat.
  absl::Status Receive(Registry::Session session, const v1::FromWorker& message);
  void Disconnected(Registry::Session session) { workers_.Disconnect(session); }

  // ---- time ----

  /// Ages workers, notices hangs, stops what must stop, starts what can start, writes what has changed, and tells workers what was
  /// taken from them. After every other call.
  void Tick();
  /// The store took the last write. Any thread.
  bool store_writable() const { return !store_refuses_; }
  /// When Tick has something to do although nothing was called.
  std::optional<Clock::Time> NextDeadline() const;

 private:
  struct Shortage {  // of workers for a queued job
    Clock::Time since;
    bool planning = false;
    int planned_on = -1;  // workers that it could not be planned on, and why
    std::string refusal = {};
  };

  /// Writes down a worker that is new, or says something new about itself.
  absl::Status Remember(v1::WorkerHello hello);
  absl::Status Apply(const std::string& worker, const v1::WorkerEvent& event);
  /// A rank has measured its links, before its first step.
  void NoteLink(const std::string& worker, const std::string& attempt, int rank, const v1::Link& link);
  struct Tracing {
    std::weak_ptr<TraceSession> session;
    int ranks = 0, steps = 0;  // of the attempt; ordered of each
  };
  void OrderTrace(const std::string& attempt, const Tracing& tracing, TraceSession& session);
  /// If its attempt is being traced.
  void SendTraceOrder(const LiveRank& rank);
  void SendTraceSteps(const LiveRank& rank, int steps);
  /// Nobody wants what the attempt's ranks, or one of them, would trace further.
  void StopTracing(const std::string& attempt, std::optional<int> only = {});
  void TakeTrace(const std::string& attempt, const v1::TracePart& part);
  void EndTrace(const std::string& attempt);
  /// Lets a rank leave that is on a worker whose ranks were evicted.
  void Evict(const std::string& worker);
  void AnswerGets(const std::string& worker, const std::string& attempt,
                  const std::vector<RendezvousTable::Answer>& answers);
  /// Takes the rank as gone, whoever says so.
  absl::Status Gone(const std::string& attempt, int rank, const RankEnd& end);
  /// What the loss of a worker is for its ranks: of those that had been told to stop, and of the others. A worker that is
  /// lost or was restarted did not do as it was told: its loss is a death, and outranks what neighbours said of it.
  struct Loss {
    EndKind if_told = EndKind::kDeath, otherwise = EndKind::kDeath;
    bool lost = false;  // it was not heard, which says little of its ranks
  };
  void RanksAreGone(const std::string& worker, const std::string& why, const Loss& loss);
  /// Ends the ranks that are overdue and need not be waited for; those whose end the store does not take stay so.
  void EndOverdue();
  /// A worker that was lost is back, and the rank is still its: it is not overdue, and those of its attempt on other lost
  /// workers get another lease to come back too.
  void BackAgain(const LiveRank& rank);
  struct Overdue {
    std::string worker, why;
    Loss loss;
    Clock::Time until = {};  // one that was lost is waited for till then in any case
  };
  /// What is known of an attempt whose ranks are overdue.
  struct Sight {
    int live = 0;            // ranks that are not gone
    bool heard = false;      // of one of them at least
    bool whole = false;      // all are there, as far as we know
    bool elsewhere = false;  // it could run on other workers
  };
  std::map<std::string, Sight> Look(const std::vector<LiveRank>& live) const;
  /// What a lost worker's ranks may be waited for: it trains on, as its neighbours' steps show; or nobody of its attempt is
  /// heard, so that the trouble may be on this side, and there is nowhere else to run it.
  bool MayTrainOn(const LiveRank& rank, const Overdue& overdue, const Sight& sight) const;
  void EndHangs();
  void Schedule();
  /// Jobs or workers have changed since the last look.
  bool ScheduleDue() const;
  /// Plans jobs again that have waited too long for workers that are not there, and as they were when those are back.
  void Replan(const Decisions& decisions);
  void PlanAgain(const std::string& id, const v1::JobStatus& status, Shortage& shortage);
  void Flush();
  /// Those of a kind: cpu or gpu; auto: GPUs where there are any now.
  Workers WorkersToPlanOn(v1::JobSpec::Device kind) const;
  void StopStale(const std::string& worker, const std::string& attempt, int rank, const std::string& why);
  void SendStop(const LiveRank& rank);

  const CoordinatorConfig& config_;
  JobTable& jobs_;
  Registry& workers_;
  Store& store_;
  const Clock& clock_;
  std::map<std::string, std::string> remembered_;  // hellos as the store has them, by name
  std::atomic<bool> store_refuses_ = false;
  std::map<Registry::RankId, Overdue> overdue_;  // ends of ranks whose worker is gone, not written yet
  std::set<std::string> evicting_;               // drained workers whose ranks are to leave
  std::set<Registry::RankId> evicted_;           // that were told so
  Scheduler scheduler_;
  RendezvousTable rendezvous_;
  HangWatch hangs_;
  std::map<std::string, Tracing> traces_;  // by attempt
  PlanElsewhere planner_;
  std::map<std::string, Shortage> shortages_;       // by job
  std::pair<uint64_t, uint64_t> scheduled_;         // versions of jobs and workers at the last look
  Clock::Time schedule_again_{}, schedule_next_{};  // when it looks although nothing has changed; not before
  Clock::Time last_tick_, flush_at_{}, look_again_{};
};

}  // namespace metp
