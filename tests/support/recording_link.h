#pragma once

// A worker's session that only writes down what it was sent. Thread-safe.

#include <utility>
#include <vector>

#include "proto/support/mutex.h"
#include "server/worker_link.h"

namespace metp {

class RecordingLink : public WorkerLink {
 public:
  void Send(v1::ToWorker message) override {
    MutexLock lock(mutex_);
    sent_.push_back(std::move(message));
  }
  void Close(const absl::Status& status) override {
    MutexLock lock(mutex_);
    closed_ = true;
  }
  std::vector<v1::ToWorker> sent() const {
    MutexLock lock(mutex_);
    return sent_;
  }
  /// What was sent since the last call.
  std::vector<v1::ToWorker> Take() {
    MutexLock lock(mutex_);
    return std::exchange(sent_, {});
  }
  bool closed() const {
    MutexLock lock(mutex_);
    return closed_;
  }

 private:
  mutable Mutex mutex_;
  std::vector<v1::ToWorker> sent_ METP_GUARDED_BY(mutex_);
  bool closed_ METP_GUARDED_BY(mutex_) = false;
};

}  // namespace metp
