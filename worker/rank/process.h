#pragma once

// One `metp-rank serve` child of a supervisor: started, listened to, signalled, waited for.
//
// The child gets: descriptor 3, its end of a socketpair (`--fd 3`); stdout and stderr, one pipe; stdin,
// /dev/null; default signal handling and an empty signal mask; a process group of its own, so that a
// terminal's ^C reaches the supervisor only; SIGKILL when the supervisor dies; and no other descriptor.
//
// Threads. Each RankProcess has one thread, from which it forks (the death signal is bound to the thread that
// forked), on which it waits for whatever comes, and on which all callbacks run. The public methods may be
// called from any thread, Wait and the destructor not from a callback.

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "metp/v1/rank.pb.h"
#include "proto/support/mutex.h"
#include "worker/rank/channel.h"
#include "worker/rank/descriptor.h"

namespace metp {

/// How a rank ended.
struct RankExit {
  int code = 0;                // exit code, where signal is 0
  int signal = 0;              // the signal that killed it, or 0
  int64_t max_rss_bytes = 0;   // most memory it ever had resident
  std::string protocol_error;  // why the supervisor killed it: it sent something that is no message; or empty

  bool clean() const { return code == 0 && signal == 0; }
  /// "exited with code 3", "killed by signal 9 (SIGKILL)".
  std::string Describe() const;
};

struct RankCommand {
  std::string program;
  std::vector<std::string> arguments = {"serve"};  // "--fd", "3" follow
  std::vector<std::pair<std::string, std::string>>
      environment;  // added to, or replacing, the supervisor's own
};

struct RankCallbacks {
  std::function<void(const v1::FromRank&)> on_message;
  /// One line of stdout or stderr without its newline; lines above 16 KiB come in pieces.
  std::function<void(std::string_view line)> on_output;
  /// Exactly once, after everything else.
  std::function<void(const RankExit&)> on_exit;
};

class RankProcess {
 public:
  /// NotFound, PermissionDenied: the program cannot be executed (no callback is called then). Callbacks may
  /// come before this has returned.
  static absl::StatusOr<std::unique_ptr<RankProcess>> Start(RankCommand command, RankCallbacks callbacks);
  /// Kills the process and waits for it.
  ~RankProcess();

  pid_t pid() const { return pid_; }

  /// Queues one message; never blocks. Unavailable: the rank has closed its end; ResourceExhausted: it has
  /// left kMaxFrameBytes unread.
  absl::Status Send(const v1::ToRank& message);
  /// SIGTERM: end the step, write a checkpoint, exit.
  void Terminate();
  /// SIGINT: exit at once.
  void Interrupt();
  /// SIGQUIT: say where it is, and go on.
  void Dump();
  /// SIGKILL.
  void Kill();
  /// Blocks until on_exit has returned.
  RankExit Wait();

 private:
  RankProcess(RankCommand command, RankCallbacks callbacks)
      : command_(std::move(command)), callbacks_(std::move(callbacks)) {}

  void Run();
  absl::Status Spawn();
  void Supervise();
  // Each returns false when its descriptor has nothing more to give.
  bool ReadMessages();
  bool ReadOutput();
  void WriteQueued() METP_EXCLUDES(mutex_);
  void DeliverLines(bool all);
  RankExit Reap();
  void Signal(int signal);

  const RankCommand command_;
  const RankCallbacks callbacks_;

  // Set by Spawn, before Start returns.
  pid_t pid_ = -1;
  Descriptor socket_, output_, pidfd_, wake_;

  // The thread's own.
  FrameDecoder decoder_;
  std::string line_;
  std::string protocol_error_;

  Mutex mutex_;
  CondVar changed_;
  bool started_ METP_GUARDED_BY(mutex_) = false;  // Spawn is over
  absl::Status start_ METP_GUARDED_BY(mutex_);
  std::string queued_ METP_GUARDED_BY(mutex_);  // frames not written yet
  bool socket_open_ METP_GUARDED_BY(mutex_) = true;
  bool finished_ METP_GUARDED_BY(mutex_) = false;
  RankExit exit_ METP_GUARDED_BY(mutex_);

  std::thread thread_;
};

}  // namespace metp
