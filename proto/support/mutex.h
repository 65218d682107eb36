#pragma once

// std::mutex with the annotations (METP_GUARDED_BY, METP_REQUIRES, METP_EXCLUDES) that let clang's
// -Wthread-safety check the locking. absl::Mutex is not used: thread sanitizer reports false races in the
// library as packaged.

#include <chrono>
#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define METP_ATTRIBUTE(x) __attribute__((x))
#else
#define METP_ATTRIBUTE(x)
#endif
#define METP_GUARDED_BY(x) METP_ATTRIBUTE(guarded_by(x))
#define METP_REQUIRES(...) METP_ATTRIBUTE(requires_capability(__VA_ARGS__))
#define METP_EXCLUDES(...) METP_ATTRIBUTE(locks_excluded(__VA_ARGS__))

namespace metp {

class METP_ATTRIBUTE(capability("mutex")) Mutex {
 public:
  void Lock() METP_ATTRIBUTE(acquire_capability()) { mutex_.lock(); }
  void Unlock() METP_ATTRIBUTE(release_capability()) { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

class METP_ATTRIBUTE(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) METP_ATTRIBUTE(acquire_capability(mutex)) : mutex_(mutex) {
    mutex_.Lock();
  }
  ~MutexLock() METP_ATTRIBUTE(release_capability()) { mutex_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

/// Condition variable for Mutex. Wait in a loop that tests the condition.
class CondVar {
 public:
  void Wait(Mutex& mutex) METP_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    cv_.wait(lock);
    lock.release();
  }
  /// False when the deadline passed first.
  bool WaitUntil(Mutex& mutex, std::chrono::steady_clock::time_point deadline) METP_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    const bool notified = cv_.wait_until(lock, deadline) == std::cv_status::no_timeout;
    lock.release();
    return notified;
  }
  void NotifyAll() { cv_.notify_all(); }
  void NotifyOne() { cv_.notify_one(); }

 private:
  std::condition_variable cv_;
};

}  // namespace metp
