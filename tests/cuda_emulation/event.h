#pragma once

// An event: the fence that was recorded last.

#include <memory>
#include <mutex>
#include <utility>

#include "tests/cuda_emulation/stream.h"

struct CUevent_st {
 public:
  explicit CUevent_st(bool timing) : timing_(timing) {}
  bool timing() const { return timing_; }
  /// Null before the first record.
  std::shared_ptr<metp::emulation::Fence> fence() const {
    const std::lock_guard lock(mutex_);
    return fence_;
  }
  void set_fence(std::shared_ptr<metp::emulation::Fence> fence) {
    const std::lock_guard lock(mutex_);
    fence_ = std::move(fence);
  }

 private:
  const bool timing_;
  mutable std::mutex mutex_;
  std::shared_ptr<metp::emulation::Fence> fence_;
};
