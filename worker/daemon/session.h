#pragma once

// The worker's session with its coordinator: dials, says hello, keeps alive, empties the outbox, hands
// commands on; when the connection breaks or the coordinator falls silent, dials again with growing, jittered
// waits. Ranks run on meanwhile.
//
// Threads: one of its own for time (heartbeats, waits); gRPC's for what arrives, on which nothing blocks.

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "metp/v1/worker_service.pb.h"
#include "proto/support/clock.h"
#include "proto/support/mutex.h"
#include "worker/daemon/config.h"
#include "worker/daemon/outbox.h"

namespace metp {

struct SessionCallbacks {
  /// The hello of a new connection, with the ranks of this moment. On the session's thread.
  std::function<v1::WorkerHello()> hello;
  /// Commands, one at a time. On gRPC's threads: must not block.
  std::function<void(v1::ToWorker)> command;
  /// The coordinator has taken the worker in. On gRPC's threads: must not block.
  std::function<void()> welcomed;
  /// The connection is gone, or could not be made: why, as a sentence. On the session's thread.
  std::function<void(const std::string&)> disconnected;
};

class Session {
 public:
  Session(const WorkerConfig& config, const Clock& clock, Outbox& outbox, SessionCallbacks callbacks);
  /// Ends at once.
  ~Session();

  void Start();
  /// Waits until everything in the outbox is acknowledged (at most the leave grace), says goodbye, ends. The
  /// outbox gets nothing more.
  void Leave() METP_EXCLUDES(mutex_);

 private:
  class Call;

  void Run() METP_EXCLUDES(mutex_);
  /// One connection from dial to end; returns why it ended.
  std::string RunOnce() METP_EXCLUDES(mutex_);
  void Wake() METP_EXCLUDES(mutex_);

  const WorkerConfig& config_;
  const Clock& clock_;
  Outbox& outbox_;
  const SessionCallbacks callbacks_;
  Mutex mutex_;
  CondVar changed_;
  std::shared_ptr<Call> call_ METP_GUARDED_BY(mutex_);  // while there is a connection
  bool call_done_ METP_GUARDED_BY(mutex_) = false;      // gRPC is through with the last connection
  bool quit_ METP_GUARDED_BY(mutex_) = false;
  bool leave_ METP_GUARDED_BY(mutex_) = false;
  bool was_welcomed_ METP_GUARDED_BY(mutex_) = false;  // by the last connection: resets the waits
  std::thread thread_;
};

}  // namespace metp
