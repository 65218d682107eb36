#pragma once

// The stream on which one rank's hops run, and how a host thread looks at points of it.

#include <cuda_runtime.h>

#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/backend/cuda/cuda_backend.h"

namespace metp::cuda {

class CommunicationStream {
 public:
  /// Non-blocking, of the highest priority. Throws StepError. The backend must outlive it.
  explicit CommunicationStream(CudaBackend& backend);
  ~CommunicationStream();
  CommunicationStream(const CommunicationStream&) = delete;
  CommunicationStream& operator=(const CommunicationStream&) = delete;

  CudaBackend& backend() { return backend_; }
  cudaStream_t stream() const { return stream_; }
  Event Record() { return backend_.events().Record(stream_); }
  /// What is enqueued from now on runs behind `event`.
  void WaitFor(const Event& event);
  /// The same for all that the compute stream has been given.
  void WaitForCompute() { WaitFor(backend_.Record()); }
  /// The compute stream waits for `event`.
  void MakeComputeWaitFor(const Event& event);
  /// Blocks until all of it is done; errors are somebody else's to report.
  void Drain();

 private:
  CudaBackend& backend_;
  cudaStream_t stream_ = nullptr;
};

/// What `calls` throws (StepError) or returns.
absl::Status Caught(const std::function<absl::Status()>& calls);

/// Whether the device has come past `event`; the error of work before it.
absl::StatusOr<bool> Passed(const Event& event);

/// Blocks the host until `event` has passed or `go_on`, asked again and again, is not OK.
absl::Status AwaitPassed(const Event& event, const std::function<absl::Status()>& go_on);

}  // namespace metp::cuda
