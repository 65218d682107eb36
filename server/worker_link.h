#pragma once

// The controller's end of a worker's session. The session adapter implements it over gRPC, tests over a list.

#include "absl/status/status.h"
#include "metp/v1/worker_service.pb.h"

namespace metp {

class WorkerLink {
 public:
  virtual ~WorkerLink() = default;
  /// Queues a message; never blocks; nothing after Close. Any thread.
  virtual void Send(v1::ToWorker message) = 0;
  /// Ends the session after what is queued. Any thread.
  virtual void Close(const absl::Status& status) = 0;
};

}  // namespace metp
