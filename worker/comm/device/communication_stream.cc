#include "worker/comm/device/communication_stream.h"

#include <chrono>
#include <thread>

#include "proto/support/status_macros.h"
#include "worker/backend/cuda/cuda_error.h"
#include "worker/backend/step_error.h"

namespace metp::cuda {

CommunicationStream::CommunicationStream(CudaBackend& backend) : backend_(backend) {
  int least = 0, greatest = 0;
  METP_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  METP_CUDA(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest));
}

CommunicationStream::~CommunicationStream() { cudaStreamDestroy(stream_); }

void CommunicationStream::WaitFor(const Event& event) {
  if (const cudaEvent_t handle = Handle(event)) METP_CUDA(cudaStreamWaitEvent(stream_, handle, 0));
}

void CommunicationStream::MakeComputeWaitFor(const Event& event) {
  if (const cudaEvent_t handle = Handle(event)) METP_CUDA(cudaStreamWaitEvent(backend_.stream(), handle, 0));
}

void CommunicationStream::Drain() { cudaStreamSynchronize(stream_); }

absl::Status Caught(const std::function<absl::Status()>& calls) {
  try {
    return calls();
  } catch (const StepError& error) {
    return error.status();
  }
}

absl::StatusOr<bool> Passed(const Event& event) {
  const cudaEvent_t handle = Handle(event);
  if (handle == nullptr) return true;
  const cudaError_t error = cudaEventQuery(handle);
  if (error == cudaErrorNotReady) return false;
  METP_RETURN_IF_ERROR(Caught([&] {
    Check(error, "cudaEventQuery");
    return absl::OkStatus();
  }));
  return true;
}

absl::Status AwaitPassed(const Event& event, const std::function<absl::Status()>& go_on) {
  constexpr int kQuickLooks = 200;  // most waits are over after microseconds
  for (int look = 0;; ++look) {
    METP_ASSIGN_OR_RETURN(const bool passed, Passed(event));
    if (passed) return absl::OkStatus();
    METP_RETURN_IF_ERROR(go_on());
    if (look < kQuickLooks) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }
}

}  // namespace metp::cuda
