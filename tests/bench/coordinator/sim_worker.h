#pragma once

// A worker daemon as the coordinator sees one: a session, heartbeats, and ranks that start at once and then report a step
// every second, as long as what real ranks report. Nothing is computed. What it has to say waits in the daemon's own
// outbox. Threads: the fleet's clock calls Dial, Beat and Step; gRPC's callbacks bring what the coordinator says.

#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "grpcpp/support/status.h"
#include "metp/v1/worker_service.grpc.pb.h"
#include "metp/v1/worker_service.pb.h"
#include "proto/support/mutex.h"
#include "worker/daemon/outbox.h"

namespace metp::bench {

using Time = std::chrono::steady_clock::time_point;

/// What a simulated worker asks of its surroundings. Called from any thread, without the worker's lock.
class Surroundings {
 public:
  virtual ~Surroundings() = default;
  /// When the attempt's ranks, all of them, report their first step.
  virtual Time FirstStep(const std::string& attempt) = 0;
  /// Step is to be called then.
  virtual void StepAt(int worker, Time due) = 0;
  /// So long after they were made, in seconds, events have been acknowledged; so many of them were steps.
  virtual void Acknowledged(const std::vector<double>& after, int steps) = 0;
  /// The worker touches nothing after this.
  virtual void SessionOver(int worker, const grpc::Status& status) = 0;
};

class SimWorker {
 public:
  SimWorker(int number, v1::WorkerService::Stub& stub, Surroundings& surroundings);
  ~SimWorker();
  SimWorker(const SimWorker&) = delete;
  SimWorker& operator=(const SimWorker&) = delete;

  /// A new session; there must be none. SessionOver follows one day.
  void Dial() METP_EXCLUDES(mutex_);
  void Beat() METP_EXCLUDES(mutex_);
  /// Reports the steps that are due and adds their number to `made`; returns when the next one is.
  std::optional<Time> Step(Time now, int& made) METP_EXCLUDES(mutex_);
  /// Says nothing any more, but keeps its connection. Returns when it last said something.
  Time Silence() METP_EXCLUDES(mutex_);
  void Cancel() METP_EXCLUDES(mutex_);

  const std::string& name() const { return hello_.name(); }
  bool silent() const METP_EXCLUDES(mutex_);
  bool welcomed() const METP_EXCLUDES(mutex_);
  /// A step of its rank has been acknowledged since the last ForgetSteps.
  bool stepping() const METP_EXCLUDES(mutex_);
  void ForgetSteps() METP_EXCLUDES(mutex_);

 private:
  class Call;
  struct Rank {
    int rank = 0, step = 0;
    Time next;
  };
  struct Unacknowledged {
    int64_t sequence = 0;
    Time made;
    bool step = false;
  };

  void Welcomed(int64_t acknowledged) METP_EXCLUDES(mutex_);
  void Acknowledged(int64_t sequence) METP_EXCLUDES(mutex_);
  void Start(const v1::RankStart& start) METP_EXCLUDES(mutex_);
  void Stop(const v1::StopRank& stop) METP_EXCLUDES(mutex_);
  void Over(const grpc::Status& status) METP_EXCLUDES(mutex_);
  void Push(v1::WorkerEvent event) METP_REQUIRES(mutex_);
  /// Lets the session write what is due.
  void Pump() METP_EXCLUDES(mutex_);
  /// What to say next; false if nothing.
  bool Next(bool& heartbeat_due, v1::FromWorker& message) METP_EXCLUDES(mutex_);

  const int number_;
  v1::WorkerService::Stub& stub_;
  Surroundings& surroundings_;
  v1::WorkerHello hello_;  // without ranks
  Outbox outbox_;
  mutable Mutex mutex_;
  std::shared_ptr<Call> call_ METP_GUARDED_BY(mutex_);
  std::map<std::string, Rank> ranks_ METP_GUARDED_BY(mutex_);  // by attempt
  std::deque<Unacknowledged> sent_ METP_GUARDED_BY(mutex_);
  int64_t last_sequence_ METP_GUARDED_BY(mutex_) = 0;
  bool welcomed_ METP_GUARDED_BY(mutex_) = false;
  bool silent_ METP_GUARDED_BY(mutex_) = false;
  bool stepping_ METP_GUARDED_BY(mutex_) = false;
  Time last_said_ METP_GUARDED_BY(mutex_);
};

}  // namespace metp::bench
