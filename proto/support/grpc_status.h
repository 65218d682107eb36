#pragma once

// absl::Status to and from grpc::Status: same codes, same message. Included by service adapters and clients
// only.

#include <string>

#include "absl/status/status.h"
#include "grpcpp/support/status.h"

namespace metp {

inline grpc::Status ToGrpc(const absl::Status& status) {
  return grpc::Status(static_cast<grpc::StatusCode>(status.raw_code()), std::string(status.message()));
}

inline absl::Status FromGrpc(const grpc::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

}  // namespace metp
