#include "worker/backend/cpu/copy_stream.h"

#include <chrono>
#include <cstring>
#include <utility>

namespace metp::cpu {

namespace {
using Clock = std::chrono::steady_clock;
double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}
}  // namespace

CopyStream::~CopyStream() {
  {
    MutexLock lock(mutex_);
    stop_ = true;
    changed_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

uint64_t CopyStream::Post(const void* from, void* to, int64_t bytes) {
  if (!thread_.joinable()) thread_ = std::thread([this] { Run(); });
  MutexLock lock(mutex_);
  queue_.push_back({from, to, bytes});
  changed_.NotifyAll();
  return ++posted_;
}

double CopyStream::Await(uint64_t number) {
  const Clock::time_point start = Clock::now();
  MutexLock lock(mutex_);
  if (done_ >= number) return 0;
  while (done_ < number) changed_.Wait(mutex_);
  return SecondsSince(start);
}

double CopyStream::TakeSeconds() {
  MutexLock lock(mutex_);
  return std::exchange(seconds_, 0);
}

void CopyStream::Run() {
  while (true) {
    Copy copy{};
    {
      MutexLock lock(mutex_);
      while (queue_.empty() && !stop_) changed_.Wait(mutex_);
      if (stop_) return;
      copy = queue_.front();
      queue_.pop_front();
    }
    const Clock::time_point start = Clock::now();
    if (copy.bytes > 0) std::memcpy(copy.to, copy.from, static_cast<size_t>(copy.bytes));
    MutexLock lock(mutex_);
    seconds_ += SecondsSince(start);
    ++done_;
    changed_.NotifyAll();
  }
}

}  // namespace metp::cpu
