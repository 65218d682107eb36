#pragma once

// The one thread on which the coordinator acts. Adapters post what arrived; after each batch, and when a
// deadline comes, the controller ticks. So the controller needs no locks, and no gRPC thread ever waits for
// the store.

#include <functional>
#include <thread>
#include <vector>

#include "proto/support/mutex.h"
#include "server/controller.h"

namespace metp {

class EventLoop {
 public:
  using Task = std::function<void(Controller&)>;

  explicit EventLoop(Controller& controller) : controller_(controller), thread_([this] { Run(); }) {}
  ~EventLoop() { Stop(); }
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  /// Runs `task` on the loop, in order of posting. Never blocks. Any thread. Dropped after Stop.
  void Post(Task task) METP_EXCLUDES(mutex_);
  /// Runs what was posted, then ends the thread.
  void Stop() METP_EXCLUDES(mutex_);

 private:
  void Run() METP_EXCLUDES(mutex_);

  Controller& controller_;
  Mutex mutex_;
  CondVar changed_;
  std::vector<Task> tasks_ METP_GUARDED_BY(mutex_);
  bool stop_ METP_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace metp
