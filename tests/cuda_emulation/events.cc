// The runtime's calls on events.

#include "tests/cuda_emulation/device.h"
#include "tests/cuda_emulation/event.h"
#include "tests/cuda_emulation/pool.h"

using namespace metp::emulation;  // NOLINT: C functions only

cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, cudaEventDefault); }

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  if (const cudaError_t error = DeviceState(); error != cudaSuccess) return Result(error);
  *event = new CUevent_st((flags & cudaEventDisableTiming) == 0);
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  if (event == nullptr) return Result(cudaErrorInvalidResourceHandle);
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (event == nullptr) return Result(cudaErrorInvalidResourceHandle);
  CUstream_st& on = StreamOf(stream);
  if (const cudaError_t error = DeviceState(on.device()); error != cudaSuccess) return Result(error);
  event->set_fence(on.Record());
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (event == nullptr) return Result(cudaErrorInvalidResourceHandle);
  if (const std::shared_ptr<Fence> fence = event->fence(); fence != nullptr) JoinHostClock(fence->Await());
  TrimPools(CurrentDevice());
  return Result(DeviceState());
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (event == nullptr) return Result(cudaErrorInvalidResourceHandle);
  if (const cudaError_t error = DeviceState(); error != cudaSuccess) return Result(error);
  const std::shared_ptr<Fence> fence = event->fence();
  if (fence == nullptr) return cudaSuccess;
  if (!fence->passed()) return Result(cudaErrorNotReady);
  JoinHostClock(fence->Await());
  return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  if (from == nullptr || to == nullptr || !from->timing() || !to->timing()) {
    return Result(cudaErrorInvalidResourceHandle);
  }
  const std::shared_ptr<Fence> begin = from->fence(), end = to->fence();
  if (begin == nullptr || end == nullptr) return Result(cudaErrorInvalidResourceHandle);
  if (!begin->passed() || !end->passed()) return Result(cudaErrorNotReady);
  *milliseconds = std::chrono::duration<float, std::milli>(end->time() - begin->time()).count();
  return cudaSuccess;
}
