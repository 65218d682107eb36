#include "server/event_loop.h"

#include <utility>

namespace metp {

void EventLoop::Post(Task task) {
  {
    MutexLock lock(mutex_);
    if (stop_) return;
    tasks_.push_back(std::move(task));
  }
  changed_.NotifyOne();
}

void EventLoop::Stop() {
  {
    MutexLock lock(mutex_);
    stop_ = true;
  }
  changed_.NotifyOne();
  if (thread_.joinable()) thread_.join();
}

void EventLoop::Run() {
  while (true) {
    std::vector<Task> batch;
    const std::optional<Clock::Time> deadline = controller_.NextDeadline();
    {
      MutexLock lock(mutex_);
      while (tasks_.empty() && !stop_) {
        if (!deadline.has_value()) {
          changed_.Wait(mutex_);
        } else if (!changed_.WaitUntil(mutex_, *deadline)) {
          break;
        }
      }
      if (stop_ && tasks_.empty()) return;
      batch.swap(tasks_);
    }
    for (Task& task : batch) task(controller_);
    controller_.Tick();
  }
}

}  // namespace metp
