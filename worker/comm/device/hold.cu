// Kernels that read and wait for the device's time. One thread each: they take a scheduler's slot and nothing else.

#include "worker/backend/cuda/launch.h"
#include "worker/comm/device/hold.h"
#include "worker/comm/device/hold_clock.h"

namespace metp::cuda {
namespace {

__global__ void NoteTimeKernel(unsigned long long* at) { *at = HoldClock(); }

__global__ void HoldKernel(const unsigned long long* at, unsigned long long nanoseconds) {
  const unsigned long long from = *at;
  while (HoldClock() - from < nanoseconds) HoldPause();
}

}  // namespace

void NoteTime(cudaStream_t stream, unsigned long long* at) {
  Launch(stream, dim3(1), dim3(1), 0, NoteTimeKernel, at);
}

void HoldUntil(cudaStream_t stream, const unsigned long long* at, double seconds) {
  Launch(stream, dim3(1), dim3(1), 0, HoldKernel, at, static_cast<unsigned long long>(seconds * 1e9));
}

}  // namespace metp::cuda
