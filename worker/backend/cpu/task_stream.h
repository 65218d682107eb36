#pragma once

// One stream of the CPU backend's host link: a thread that does what is posted, in that order. Post and TakeSpans
// belong to one thread, Await to any.

#include <cstdint>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "proto/support/mutex.h"

namespace metp::cpu {

class TaskStream {
 public:
  /// Returns the seconds of it that it stood waiting, which do not count as work.
  using Task = std::function<double()>;

  TaskStream() = default;
  ~TaskStream() {
    Stop();
    Join();
  }
  /// Tasks not begun are dropped, and waits for them end.
  void Stop() METP_EXCLUDES(mutex_);
  /// After Stop: until the task under way is done.
  void Join();

  /// Numbers count from 1. The thread is started by the first.
  uint64_t Post(Task task) METP_EXCLUDES(mutex_);
  struct Span {
    double start, seconds;  // on the steady clock
  };
  /// Returns when task `number` is done; how long that was waited for.
  Span Await(uint64_t number) METP_EXCLUDES(mutex_);
  /// The tasks done since the last call: from when they had waited for others on.
  std::vector<Span> TakeSpans() METP_EXCLUDES(mutex_);

 private:
  void Run() METP_EXCLUDES(mutex_);

  Mutex mutex_;
  CondVar changed_;
  std::deque<Task> queue_ METP_GUARDED_BY(mutex_);
  uint64_t posted_ METP_GUARDED_BY(mutex_) = 0;
  uint64_t done_ METP_GUARDED_BY(mutex_) = 0;
  std::vector<Span> spans_ METP_GUARDED_BY(mutex_);
  bool stop_ METP_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace metp::cpu
