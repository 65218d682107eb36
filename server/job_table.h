#pragma once

// Jobs and their life: the state machine, free of gRPC and of threads of its own.
//
//              1           2             3              4
//    (submit) ---> QUEUED ---> STARTING ---> RUNNING ---------> SUCCEEDED
//                  ^ |            |  |         |  |
//                8 | | 5        6 |  | 7     6 |  | 7
//                  | v            v  |         v  |
//                  | CANCELLED  CANCELLED +-------+----------> FAILED
//                  +----------------------+-------+
//
//    1 Add           a new request id; the job is planned already
//    2 StartAttempt  a whole gang of workers is reserved; a new attempt with its own incarnation "<id>/<number>"
//    3 RankStarted   of the last rank that had not started
//    4 RankGone      of the last rank, one of them done: it left only when all had done their last step
//    5 Cancel        of a job that waits: at once
//    6 RankGone      of the last rank, after Cancel asked for the end
//    7 RankGone      of the last rank, none done, and trying again is of no use (recovery.h)
//    8 RankGone      of the last rank, none done, and it is: the job waits for its next attempt
//
// The attempt's cause is the strongest of its ranks' ends (rank_end.h), or what EndAttempt was told. Between the decision
// (Cancel, EndAttempt, or the first bad end) and arrow 4, 6, 7 or 8 the job is `stopping`: it keeps its state and its
// workers until every process is gone. Terminal states never change. Messages that name an attempt are refused with
// FailedPrecondition unless that attempt is the job's last and the rank is not gone.
//
// A change of state is written to the store before it is visible; if that fails, it did not happen. What ranks report on
// their way (steps, peaks, process ids, output, that one of several has started) is visible at once and written by the next
// Flush, which comes before a worker is told that it was taken.
//
// Thread-safe. One writer at a time (write_mutex_); readers wait for no disk (mutex_).

#include <cstdint>
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
#include "proto/support/clock.h"
#include "proto/support/mutex.h"
#include "server/change_hub.h"
#include "server/config.h"
#include "server/job_progress.h"
#include "server/log_ring.h"
#include "server/rank_end.h"
#include "server/scheduler/policy.h"
#include "server/store/store.h"

namespace metp {

/// One rank of an attempt that is not gone.
struct LiveRank {
  std::string job, attempt;
  int rank = 0;
  std::string worker;
  v1::RankStatus::State state = v1::RankStatus::ASSIGNED;
  int step = 0;  // last reported
  bool stop_sent = false;
  std::string reason;  // why it was told to stop
  bool dump = false;   // first it is to say where it is
};

/// Some neighbouring steps of a job's curve; of very many, a sample of them.
struct CurvePoint {
  int first_step = 0, last_step = 0;
  double loss = 0, lowest_loss = 0, highest_loss = 0;  // the mean, and between what it lies
  double tokens_per_second = 0;
};
/// A job's last steps together.
struct StepRate {
  int steps = 0;
  double seconds = 0, tokens = 0, model_flops = 0;  // sums
};

struct Placement {
  std::string worker, metrics_url;
};

bool IsTerminal(v1::JobStatus::State state);
google::protobuf::Timestamp TimeStamp(const Clock& clock);
/// "job-7" of "job-7/2".
std::string JobOfAttempt(const std::string& attempt);

class JobTable {
 public:
  JobTable(const CoordinatorConfig& config, const Clock& clock, Store& store, ChangeHub& changes)
      : config_(config), clock_(clock), store_(store), changes_(changes) {}

  /// What the store had. Once, before anything else.
  void Load(const StoredState& state);
  /// Writes what has changed since the last write, and `more` with it. Unavailable: not written; it stays for the next
  /// Flush.
  absl::Status Flush(StoreChange more = {});

  // ---- writers ----

  /// The job made by `request_id` before, if it has the same content; AlreadyExists if it has another;
  /// NotFound if none.
  absl::StatusOr<v1::JobStatus> Repeated(const std::string& request_id, const v1::JobSpec& job) const;
  /// Arrow 1. `job` normalized and valid, `request_id` new.
  absl::StatusOr<v1::JobStatus> Add(const std::string& request_id, const v1::JobSpec& job,
                                    const v1::Plan& plan, const v1::Prediction& prediction);
  /// Arrow 2. `placement[r]` holds rank r. Returns the attempt. FailedPrecondition unless QUEUED;
  /// InvalidArgument unless there are as many placements as the plan has ranks.
  absl::StatusOr<std::string> StartAttempt(const std::string& id, const std::vector<Placement>& placement);
  absl::Status RankSpawned(const std::string& attempt, int rank, int pid);
  /// Arrow 3.
  absl::Status RankStarted(const std::string& attempt, int rank, const std::string& description);
  /// Steps at or before the rank's last one are ignored (repeated after a broken session).
  absl::Status Report(const std::string& attempt, const v1::StepReport& report);
  absl::Status AppendOutput(const std::string& attempt, int rank, const std::vector<std::string>& lines,
                            int64_t dropped);
  /// What a rank has left for others of its attempt, kept while the attempt starts.
  absl::Status NoteRendezvous(const std::string& attempt, int rank, const std::string& key,
                              const std::string& value);
  absl::Status SetMeasured(const std::string& attempt, int rank, double sgemm_flops_per_second);
  /// What became of a checkpoint.
  absl::Status NoteCheckpoint(const std::string& attempt, int rank, const v1::CheckpointNote& note);
  /// Something that happened to the job.
  void NoteEvent(const std::string& id, v1::JobEvent::Kind kind, const std::string& text);
  /// Arrows 4, 6, 7, 8.
  absl::Status RankGone(const std::string& attempt, int rank, const RankEnd& end);
  /// The attempt is to end for this cause, unless it is ending already; `dump`: its ranks are to say where they are.
  absl::Status EndAttempt(const std::string& attempt, const RankEnd& cause, bool dump);
  /// Arrow 5, or the wish that leads to 6. OK again for a job that is being or has been cancelled;
  /// FailedPrecondition for one that has ended otherwise.
  absl::StatusOr<v1::JobStatus> Cancel(const std::string& id);
  /// Another plan for a queued job; the first one is remembered. FailedPrecondition: it is not QUEUED any more.
  absl::Status Replan(const std::string& id, const v1::Plan& plan, const v1::Prediction& prediction,
                      const std::string& why);
  /// Why queued jobs wait. Not written to the store. Nothing for a job that is not QUEUED.
  void SetWaiting(const std::vector<Decisions::Wait>& waiting);

  /// Ranks that must be told to stop now and have not been; they count as told afterwards.
  std::vector<LiveRank> TakeStops();
  /// When TakeStops may next have something, or a job's wait for its next attempt is over.
  std::optional<Clock::Time> NextDeadline() const;

  // ---- readers ----

  /// Id for an id, a name (its latest job) or an unambiguous beginning of an id. NotFound; InvalidArgument
  /// lists the candidates of an ambiguous one.
  absl::StatusOr<std::string> Find(const std::string& reference) const;
  absl::StatusOr<v1::JobStatus> Get(const std::string& id) const;
  /// All jobs with sequence above `after`, oldest first, `limit` at most, without ranks.
  std::vector<v1::JobRecord> List(int64_t after, int limit) const;
  /// OK if the attempt is its job's last and the rank of it is not gone.
  absl::Status CheckLive(const std::string& attempt, int rank) const;
  /// Queued jobs in order of submission, and jobs that hold workers.
  std::vector<WaitingJob> Queued() const;
  std::vector<RunningJob> Running() const;
  /// Changes whenever Queued or Running may have, or the time for an attempt has come.
  uint64_t schedule_version() const;
  /// Queued jobs that have another plan than their first one, and that.
  std::map<std::string, std::pair<v1::Plan, v1::Prediction>> Shrunk() const;
  /// Flush has something to write.
  bool HasChanges() const;
  /// Every rank that is not gone.
  std::vector<LiveRank> LiveRanks() const;
  /// Jobs in each state, every state named; the jobs that hold workers.
  std::map<v1::JobStatus::State, int> Count() const;
  std::vector<v1::JobStatus> Active() const;
  /// Queued jobs by what they wait for, every cause named.
  std::map<WaitCause, int> CountWaiting() const;
  /// When their last step became whole, as this coordinator saw it, of jobs that hold workers; before the first: their start.
  std::map<std::string, std::chrono::system_clock::time_point> LastSteps() const;
  /// Everything, for invariants.
  std::vector<v1::JobRecord> Snapshot() const;
  absl::StatusOr<std::vector<v1::JobEvent>> Events(const std::string& id) const;

  /// What the overview shows: `limit` jobs at most of each kind, without ranks but the fullest one's memory.
  struct Overview {
    std::map<v1::JobStatus::State, int> count;
    std::vector<v1::JobStatus> queued;    // first come first
    std::vector<v1::JobStatus> active;    // last submitted first
    std::vector<v1::JobStatus> finished;  // last ended first
    struct Trend {
      std::vector<double> losses;  // thinned to 60 at most, the last one is the last step's
      StepRate rate;
    };
    std::map<std::string, Trend> trends;  // of the active ones, if they were asked for
  };
  Overview ReadOverview(size_t limit, bool with_trends = true) const;
  struct View {
    v1::JobStatus status;
    std::vector<v1::JobEvent> events;  // oldest first
    std::vector<CurvePoint> curve;     // `points` at most
    int steps_known = 0;               // that it is made of
    StepRate rate;                     // over the last steps
    JobHistory history;
  };
  absl::StatusOr<View> ReadView(const std::string& id, size_t points) const;

  struct Update {
    uint64_t version = 0;  // of the status
    v1::JobStatus status;
    std::vector<v1::StepPoint> steps;  // after_step + 1 and on, `limit` at most
    bool more = false;                 // steps beyond these are there already
  };
  absl::StatusOr<Update> Read(const std::string& id, int after_step, int limit) const;
  struct LogUpdate {
    LogRing::Read read;
    bool terminal = false;  // no lines beyond these will come
  };
  /// `stored`: only lines that the store has, which a coordinator that dies now would know again.
  absl::StatusOr<LogUpdate> ReadLog(const std::string& id, int64_t offset, std::optional<int> rank,
                                    size_t max_bytes, bool stored = false) const;

 private:
  struct Stop {  // the attempt's end is decided
    bool cancel = false;
    Clock::Time at;  // ranks are told then
    bool sent = false;
    bool dump = false;
  };
  struct Job {
    Job(size_t log_lines, size_t log_bytes) : log(log_lines, log_bytes) {}
    v1::JobRecord record;
    uint64_t version = 0;
    std::optional<Stop> stop;
    std::optional<RankEnd> cause;
    std::optional<Clock::Time> not_before;                           // its next attempt
    WaitCause wait = WaitCause::kBusy;                               // while it is queued
    std::optional<std::chrono::system_clock::time_point> last_step;  // was whole; its first start before that
    JobProgress progress;
    LogRing log;
  };

  Job* FindJob(const std::string& id) METP_REQUIRES(mutex_);
  const Job* FindJob(const std::string& id) const METP_REQUIRES(mutex_);
  /// The job whose last attempt this is, with the rank not gone.
  absl::StatusOr<Job*> Live(const std::string& attempt, int rank) METP_REQUIRES(mutex_);
  absl::Status CheckLiveLocked(const std::string& attempt, int rank) const METP_REQUIRES(mutex_);
  /// Writes `next` to the store, with what is known of its steps, then makes it visible.
  absl::Status Commit(const v1::JobRecord& next) METP_REQUIRES(write_mutex_) METP_EXCLUDES(mutex_);
  /// A sentence for the job's events; the oldest go when there are many.
  void AddEvent(v1::JobRecord& record, v1::JobEvent::Kind kind, const std::string& text) const;
  /// What an end of this kind does to an attempt that had these so far.
  void Weigh(const RankEnd& end, v1::JobRecord& record, std::optional<Stop>& stop,
             std::optional<RankEnd>& cause) const;
  /// Arrow 4, 6, 7 or 8, now that every rank is gone; 8 says how long it waits.
  std::optional<Clock::Duration> Conclude(v1::JobRecord& record, const std::optional<Stop>& stop,
                                          const std::optional<RankEnd>& cause) const;
  /// The record of a job to change and commit. NotFound.
  absl::StatusOr<v1::JobRecord> RecordOf(const std::string& id) const METP_EXCLUDES(mutex_);
  /// The record has changed and is written by the next Flush.
  void Changed(Job& job) METP_REQUIRES(mutex_);
  /// The end that had been decided.
  void LoadStop(Job& job) const;
  /// Enters the job where its state belongs.
  void Index(Job& job) METP_REQUIRES(mutex_);
  void DropOldFinished() METP_REQUIRES(write_mutex_) METP_EXCLUDES(mutex_);
  /// Its history had `before` points: keeps the sum of all within bounds.
  void BoundHistory(Job& job, size_t before) METP_REQUIRES(mutex_);
  void DropHistory(Job& job) METP_REQUIRES(mutex_);

  const CoordinatorConfig& config_;
  const Clock& clock_;
  Store& store_;
  ChangeHub& changes_;
  Mutex write_mutex_;  // taken before mutex_, never after
  mutable Mutex mutex_;
  std::map<int64_t, std::unique_ptr<Job>> jobs_ METP_GUARDED_BY(mutex_);  // by sequence
  std::map<std::string, Job*> by_id_ METP_GUARDED_BY(mutex_);
  std::map<std::string, Job*> by_request_ METP_GUARDED_BY(mutex_);
  int64_t last_sequence_ METP_GUARDED_BY(mutex_) = 0;
  // By sequence:
  std::set<int64_t> shrunk_ METP_GUARDED_BY(mutex_);  // queued with another plan than their first
  std::set<int64_t> queued_ METP_GUARDED_BY(mutex_), active_ METP_GUARDED_BY(mutex_);
  std::set<std::pair<int64_t, int64_t>> finished_ METP_GUARDED_BY(mutex_);  // by the time of their end
  std::set<int64_t> delayed_ METP_GUARDED_BY(mutex_);  // queued, their next attempt not before a time
  std::set<int64_t> changed_ METP_GUARDED_BY(mutex_);  // since they were last written
  uint64_t schedule_version_ METP_GUARDED_BY(mutex_) = 1;
  size_t history_points_ METP_GUARDED_BY(mutex_) = 0;  // of all jobs
};

}  // namespace metp
