#pragma once

// CUDA events with timing, used again when the last holder of one is gone: a step records hundreds. Thread-safe; must
// outlive every Event it gave out.

#include <cuda_runtime.h>

#include <memory>
#include <vector>

#include "proto/support/mutex.h"
#include "worker/backend/backend.h"

namespace metp::cuda {

class EventPool {
 public:
  EventPool() = default;
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;
  ~EventPool();

  /// A point in `stream`, behind everything issued to it so far.
  Event Record(cudaStream_t stream) METP_EXCLUDES(mutex_);

 private:
  Mutex mutex_;
  std::vector<cudaEvent_t> free_ METP_GUARDED_BY(mutex_);
};

/// The CUDA event behind `event`; null for a default one, which has passed already.
inline cudaEvent_t Handle(const Event& event) { return static_cast<cudaEvent_t>(event.point.get()); }

}  // namespace metp::cuda
