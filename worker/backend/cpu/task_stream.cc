#include "worker/backend/cpu/task_stream.h"

#include <chrono>
#include <utility>

namespace metp::cpu {

namespace {
using Clock = std::chrono::steady_clock;
double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
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

double TaskStream::Await(uint64_t number) {
  const Clock::time_point start = Clock::now();
  MutexLock lock(mutex_);
  if (done_ >= number) return 0;
  while (done_ < number && !stop_) changed_.Wait(mutex_);
  return SecondsSince(start);
}

double TaskStream::TakeSeconds() {
  MutexLock lock(mutex_);
  return std::exchange(seconds_, 0);
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
    const Clock::time_point start = Clock::now();
    const double waited = task();
    MutexLock lock(mutex_);
    seconds_ += SecondsSince(start) - waited;
    ++done_;
    changed_.NotifyAll();
  }
}

}  // namespace metp::cpu
