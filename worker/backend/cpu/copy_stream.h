#pragma once

// One direction of the CPU backend's host link: a thread that copies what is posted, in that order. Post, Await and
// the times belong to one thread.

#include <cstdint>
#include <deque>
#include <thread>

#include "proto/support/mutex.h"

namespace metp::cpu {

class CopyStream {
 public:
  CopyStream() = default;
  /// Copies not begun are dropped.
  ~CopyStream();

  /// Numbers count from 1. The thread is started by the first.
  uint64_t Post(const void* from, void* to, int64_t bytes) METP_EXCLUDES(mutex_);
  /// Returns when copy `number` is done; the seconds waited.
  double Await(uint64_t number) METP_EXCLUDES(mutex_);
  /// Seconds at work since the last call.
  double TakeSeconds() METP_EXCLUDES(mutex_);

 private:
  struct Copy {
    const void* from;
    void* to;
    int64_t bytes;
  };
  void Run() METP_EXCLUDES(mutex_);

  Mutex mutex_;
  CondVar changed_;
  std::deque<Copy> queue_ METP_GUARDED_BY(mutex_);
  uint64_t posted_ METP_GUARDED_BY(mutex_) = 0;
  uint64_t done_ METP_GUARDED_BY(mutex_) = 0;
  double seconds_ METP_GUARDED_BY(mutex_) = 0;
  bool stop_ METP_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace metp::cpu
