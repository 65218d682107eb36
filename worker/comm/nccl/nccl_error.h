#pragma once

// What NCCL answers, as a Status.

#include <nccl.h>

#include <string>

#include "absl/status/status.h"

namespace metp::nccl {

/// `context` says who, at what and beside whom. Unavailable: another rank is gone, or the system under the ring failed;
/// Internal: anything else. With NCCL's own account of its last error, of `comm` where there is one.
absl::Status ToStatus(ncclResult_t result, const std::string& context, ncclComm_t comm = nullptr);

/// "2.28.9".
std::string VersionText(int version);

}  // namespace metp::nccl
