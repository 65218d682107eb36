#include "worker/backend/cuda/event_pool.h"

#include "worker/backend/cuda/cuda_error.h"

namespace metp::cuda {

EventPool::~EventPool() {
  MutexLock lock(mutex_);
  for (cudaEvent_t event : free_) cudaEventDestroy(event);
}

Event EventPool::Record(cudaStream_t stream) {
  cudaEvent_t event = nullptr;
  {
    MutexLock lock(mutex_);
    if (!free_.empty()) {
      event = free_.back();
      free_.pop_back();
    }
  }
  if (event == nullptr) METP_CUDA(cudaEventCreate(&event));
  std::shared_ptr<void> point(event, [this](void* freed) {
    MutexLock lock(mutex_);
    free_.push_back(static_cast<cudaEvent_t>(freed));
  });
  METP_CUDA(cudaEventRecord(event, stream));
  return {std::move(point), 0};
}

}  // namespace metp::cuda
