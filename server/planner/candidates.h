#pragma once

// The plans that a search looks at. Pure.

#include <string>
#include <vector>

#include "metp/v1/job.pb.h"
#include "metp/v1/plan.pb.h"
#include "metp/v1/profile.pb.h"

namespace metp {

inline constexpr int kMostDevices = 4096;  // that a search goes up to

/// Every combination of what the job leaves to `auto`: degrees, and rings of that degree, up to `devices`, head groups,
/// tile rows, what is recomputed, what is offloaded. What it fixes is one value. Never empty; sorted from least to most memory saved.
std::vector<v1::Plan> Candidates(const v1::JobSpec& job, const v1::DeviceProfile& profile, int devices);

/// Of these the ones that take least memory, of the device and, where offload is open, of the host.
std::vector<v1::Plan> LeastMemory(const v1::JobSpec& job, const v1::DeviceProfile& profile, int devices);

/// A change to a plan that may save memory, and the job file's setting for it.
struct Change {
  std::string setting;
  v1::Plan plan;
};
/// In the order of what they cost a user: a setting first, then more devices.
std::vector<Change> Changes(const v1::JobSpec& job, const v1::Plan& plan);

}  // namespace metp
