#include "worker/backend/cuda/memory_pool.h"

#include <limits>

#include "worker/backend/cuda/cuda_error.h"

namespace metp::cuda {

MemoryPool::MemoryPool(int device, cudaStream_t stream) : stream_(stream) {
  cudaMemPoolProps properties = {};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location.type = cudaMemLocationTypeDevice;
  properties.location.id = device;
  METP_CUDA(cudaMemPoolCreate(&pool_, &properties));
  // Kept at every synchronisation: every step asks for the same again.
  uint64_t keep = std::numeric_limits<uint64_t>::max();
  METP_CUDA(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &keep));
}

MemoryPool::~MemoryPool() {
  cudaStreamSynchronize(stream_);
  cudaMemPoolDestroy(pool_);
}

void* MemoryPool::TryTake(int64_t bytes) {
  void* data = nullptr;
  const cudaError_t error = cudaMallocFromPoolAsync(&data, static_cast<size_t>(bytes), pool_, stream_);
  if (error == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();  // answered for: it must not come out of the next call
    return nullptr;
  }
  METP_CUDA(error);
  return data;
}

void* MemoryPool::Take(int64_t bytes) {
  if (void* data = TryTake(bytes)) return data;
  // What is free may lie in pieces that are each too small. Once it is idle the device can have it back.
  METP_CUDA(cudaStreamSynchronize(stream_));
  METP_CUDA(cudaMemPoolTrimTo(pool_, 0));
  return TryTake(bytes);
}

void MemoryPool::Give(void* data) {
  // Not thrown: a tensor goes while a step's error is on its way. A broken device is reported by the next call.
  (void)cudaFreeAsync(data, stream_);
}

int64_t MemoryPool::reserved_bytes() const {
  uint64_t bytes = 0;
  METP_CUDA(cudaMemPoolGetAttribute(pool_, cudaMemPoolAttrReservedMemCurrent, &bytes));
  return static_cast<int64_t>(bytes);
}

}  // namespace metp::cuda
