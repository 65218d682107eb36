#include "worker/comm/device/device_transport.h"

#include <utility>

#include "proto/support/status_macros.h"

namespace metp::cuda {

absl::Status DirectTransport::Enqueue(DeviceHop hop) {
  stream_->WaitFor(hop.after);
  listener_->Started(hop.id, stream_->Record());
  if (!hop.exchange.empty()) METP_RETURN_IF_ERROR(Transfer(hop));
  listener_->Enqueued(hop.id, stream_->Record());
  return absl::OkStatus();
}

}  // namespace metp::cuda
