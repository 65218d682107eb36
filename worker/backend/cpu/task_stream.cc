#include "worker/backend/cpu/task_stream.h"

#include <chrono>
#include <utility>

namespace metp::cpu {

namespace {
double Now() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}
}  // namespace

void TaskStream::Stop() {
  MutexLock lock(mutex_);
  stop_ = true;
  changed_.NotifyAll();
}

void TaskStream::Join() {
  if (thread_.joinable()) thread_.join();
}

uint64_t TaskStream::Post(Task task) {
  if (!thread_.joinable()) thread_ = std::thread([this] { Run(); });
  MutexLock lock(mutex_);
  queue_.push_back(std::move(task));
  changed_.NotifyAll();
  return ++posted_;
}

TaskStream::Span TaskStream::Await(uint64_t number) {
  const double start = Now();
  MutexLock lock(mutex_);
  if (done_ >= number) return {start, 0};
  while (done_ < number && !stop_) changed_.Wait(mutex_);
  return {start, Now() - start};
}

std::vector<TaskStream::Span> TaskStream::TakeSpans() {
  MutexLock lock(mutex_);
  return std::exchange(spans_, {});
}

void TaskStream::Run() {
  while (true) {
    Task task;
    {
      MutexLock lock(mutex_);
      while (queue_.empty() && !stop_) changed_.Wait(mutex_);
      if (stop_) return;
      task = std::move(queue_.front());
      queue_.pop_front();
    }
    const double start = Now();
    const double waited = task();
    MutexLock lock(mutex_);
    spans_.push_back({start + waited, Now() - start - waited});
    ++done_;
    changed_.NotifyAll();
  }
}

}  // namespace metp::cpu
