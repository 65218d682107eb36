#pragma once

// One device profile for a plan over many workers. Pure.

#include <optional>
#include <vector>

#include "metp/v1/profile.pb.h"
#include "metp/v1/status.pb.h"

namespace metp {

/// A ring is as fast as its slowest rank: of each figure the slowest or smallest among the workers that are not lost and
/// have a profile (fp32 before bf16); devices_per_node is the most that share a node. Without a node_link where nobody
/// knows one. nullopt: none has a profile. Its name is "worker".
std::optional<v1::DeviceProfile> CommonProfile(const std::vector<v1::WorkerStatus>& workers);

}  // namespace metp
