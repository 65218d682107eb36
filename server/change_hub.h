#pragma once

// Tells whoever watches a key (a job's id) that there is something new. A notice carries nothing: the watcher
// reads what it has not seen yet, so a slow watcher costs no memory. Thread-safe; notices run on the
// notifying thread and must not block.

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "proto/support/mutex.h"

namespace metp {

class ChangeHub {
 public:
  using Notice = std::function<void()>;

  /// Ends the subscription when destroyed; a notice that is already running may still finish afterwards.
  class Subscription {
   public:
    Subscription() = default;
    Subscription(ChangeHub* hub, std::string key, std::shared_ptr<Notice> notice)
        : hub_(hub), key_(std::move(key)), notice_(std::move(notice)) {}
    Subscription(Subscription&& other) noexcept { *this = std::move(other); }
    Subscription& operator=(Subscription&& other) noexcept;
    ~Subscription() { Reset(); }
    void Reset();

   private:
    ChangeHub* hub_ = nullptr;
    std::string key_;
    std::shared_ptr<Notice> notice_;
  };

  [[nodiscard]] Subscription Subscribe(const std::string& key, Notice notice) METP_EXCLUDES(mutex_);
  void Notify(const std::string& key) METP_EXCLUDES(mutex_);
  /// There will be nothing new any more: tells everybody, and those who subscribe later can ask.
  void Close() METP_EXCLUDES(mutex_);
  bool closed() const { return closed_; }

 private:
  void Remove(const std::string& key, const std::shared_ptr<Notice>& notice) METP_EXCLUDES(mutex_);

  std::atomic<bool> closed_ = false;
  Mutex mutex_;
  std::map<std::string, std::vector<std::shared_ptr<Notice>>> notices_ METP_GUARDED_BY(mutex_);
};

}  // namespace metp
