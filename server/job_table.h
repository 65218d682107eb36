#pragma once

// Jobs and their life: the state machine, free of gRPC and of threads of its own.
//
//              1           2             3              4
//    (submit) ---> QUEUED ---> STARTING ---> RUNNING ---------> SUCCEEDED
//                    |            |  |         |  |
//                  5 |          6 |  | 7     6 |  | 7
//                    v            v  |         v  |
//                 CANCELLED  CANCELLED +-----------+----------> FAILED
//
//    1 Add           a new request id; the job is planned already
//    2 StartAttempt  a whole gang of workers is reserved; a new attempt with its own incarnation "<id>/<number>"
//    3 RankStarted   of the last rank that had not started
//    4 RankGone      of the last rank, all ranks done
//    5 Cancel        of a job that waits: at once
//    6 RankGone      of the last rank, after Cancel asked for the end
//    7 RankGone      of the last rank, some rank not done: the strongest cause, the earliest of those, is the job's
//
// Between the decision (Cancel, or the first bad end) and arrow 4, 6 or 7 the job is `stopping`: it keeps its
// state and its workers until every process is gone. Terminal states never change. Messages that name an
// attempt are refused with FailedPrecondition unless that attempt is the job's last and the rank is not gone.
//
// A change of state is written to the store before it is visible; if that fails, it did not happen. What ranks report on
// their way (steps, peaks, process ids, that one of several has started) is visible at once and written by the next Flush,
// which comes before a worker is told that it was taken. Output is not written.
//
// Thread-safe. One writer at a time (write_mutex_); readers wait for no disk (mutex_).

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
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
#include "server/scheduler/policy.h"
#include "server/store/store.h"

namespace metp {

/// How a rank came to its end. Which of several ends is the job's cause: an error or a death before a
/// consequence before a stop; the earliest of the strongest.
enum class EndKind {
  kDone,         // all steps done
  kStopped,      // by what the coordinator had asked for
  kConsequence,  // complains of a neighbour or a time-out
  kError,        // says what went wrong with itself
  kDeath,        // said nothing
};
inline constexpr char kDoneEnd[] = "done";  // the message of kDone
struct RankEnd {
  EndKind kind = EndKind::kDone;
  std::string message;  // full sentence: "rank 2 on worker cpu-3: killed by signal 9 (SIGKILL)"
};

/// One rank of an attempt that is not gone.
struct LiveRank {
  std::string job, attempt;
  int rank = 0;
  std::string worker;
  v1::RankStatus::State state = v1::RankStatus::ASSIGNED;
  bool stop_sent = false;
  std::string reason;  // why it was told to stop
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
  /// Writes what has changed since the last write. Unavailable: not written; it stays for the next Flush.
  absl::Status Flush();

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
  /// Arrows 4, 6, 7.
  absl::Status RankGone(const std::string& attempt, int rank, const RankEnd& end);
  /// Arrow 5, or the wish that leads to 6. OK again for a job that is being or has been cancelled;
  /// FailedPrecondition for one that has ended otherwise or is failing.
  absl::StatusOr<v1::JobStatus> Cancel(const std::string& id);
  /// Why a queued job waits. Not written to the store. Nothing if the job is not QUEUED.
  void SetWaiting(const std::string& id, const std::string& reason);

  /// Ranks that must be told to stop now and have not been; they count as told afterwards.
  std::vector<LiveRank> TakeStops();
  /// When TakeStops may next have something.
  std::optional<Clock::Time> NextStop() const;

  // ---- readers ----

  /// Id for an id, a name (its latest job) or an unambiguous beginning of an id. NotFound; InvalidArgument
  /// lists the candidates of an ambiguous one.
  absl::StatusOr<std::string> Find(const std::string& reference) const;
  absl::StatusOr<v1::JobStatus> Get(const std::string& id) const;
  /// All jobs with sequence above `after`, oldest first, `limit` at most, without ranks.
  std::vector<v1::JobRecord> List(int64_t after, int limit) const;
  /// OK if the attempt is its job's last and the rank of it is not gone.
  absl::Status CheckLive(const std::string& attempt, int rank) const;
  /// Queued jobs in order of submission.
  std::vector<WaitingJob> Queued() const;
  /// Every rank that is not gone.
  std::vector<LiveRank> LiveRanks() const;
  /// Everything, for invariants and metrics.
  std::vector<v1::JobRecord> Snapshot() const;
  absl::StatusOr<std::vector<v1::JobEvent>> Events(const std::string& id) const;

  struct Update {
    uint64_t version = 0;  // of the status
    v1::JobStatus status;
    std::vector<v1::StepPoint> steps;  // after_step + 1 and on, `limit` at most
    bool more = false;                 // steps beyond these are there already
  };
  absl::StatusOr<Update> Read(const std::string& id, int after_step, int limit) const;
  struct LogUpdate {
    LogRing::Read read;
    bool terminal = false;  // no more lines will come
    bool more = false;      // lines beyond these are there already
  };
  absl::StatusOr<LogUpdate> ReadLog(const std::string& id, int64_t offset, std::optional<int> rank,
                                    size_t max_bytes) const;

 private:
  struct Stop {  // the attempt's end is decided
    bool cancel = false;
    Clock::Time at;  // ranks are told then
    bool sent = false;
  };
  struct Job {
    Job(size_t log_lines, size_t log_bytes) : log(log_lines, log_bytes) {}
    v1::JobRecord record;
    uint64_t version = 0;
    bool changed = false;  // the record, since it was last written
    std::optional<Stop> stop;
    std::optional<RankEnd> cause;
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
  void AddEvent(v1::JobRecord& record, const std::string& text) const;
  void DropOldFinished() METP_REQUIRES(write_mutex_) METP_EXCLUDES(mutex_);

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
};

}  // namespace metp
