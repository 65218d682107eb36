#pragma once

// What a ring's links can do, measured over the ring itself.

#include "absl/status/statusor.h"
#include "metp/v1/profile.pb.h"
#include "worker/backend/backend.h"
#include "worker/comm/communicator.h"

namespace metp {

/// Latency and bandwidth of hops of the backend's memory, both directions busy, all ranks at it at once: a rank of a
/// ring that is at rest sees the slower of its two links. About 30 messages, 4 MiB the largest. With one rank: no limit.
absl::StatusOr<v1::Link> MeasureLink(Backend& backend, Communicator& communicator);

}  // namespace metp
