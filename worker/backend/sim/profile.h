#pragma once

// Device profiles (proto/metp/v1/profile.proto): those that come with the program, and those of users' files.

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "metp/v1/profile.pb.h"

namespace metp {

/// Names of the built-in profiles, sorted: worker/backend/sim/profiles/NAME.yaml, in the program itself.
std::vector<std::string> BuiltInProfiles();

/// A built-in profile, or the YAML file at that path; complete and valid. NotFound: neither, naming the built-in
/// ones; InvalidArgument "FILE:LINE: KEY: MESSAGE", a line a problem.
absl::StatusOr<v1::DeviceProfile> LoadProfile(const std::string& name_or_path);

/// The same from text, called `name` in messages.
absl::StatusOr<v1::DeviceProfile> ParseProfile(const std::string& text, const std::string& name);

/// As a profile file; ParseProfile gives the same profile back.
std::string ProfileToYaml(const v1::DeviceProfile& profile);

/// Of a GPU with so much memory, what contexts, libraries and fragments are taken to hold: 2.5 GB, less of a small device.
int64_t ReservedBytesOf(int64_t memory_bytes);

/// Fills every absent optional field with its default.
void NormalizeProfile(v1::DeviceProfile& profile);

/// What one of a job's `devices` gets of its host's memory and of that memory's rate: those on a node share them.
struct HostShare {
  int64_t memory_bytes = 0;
  double bytes_per_second = 0;
};
inline HostShare ShareOfHost(const v1::DeviceProfile& profile, int devices) {
  const int sharing = devices < profile.devices_per_node() ? devices : profile.devices_per_node();
  return {profile.host_memory_bytes() / sharing, profile.host_bytes_per_second() / sharing};
}

/// Whether a rank with these peaks, of its device and of its share of the host, finds room.
inline bool FindsRoom(const v1::DeviceProfile& profile, int devices, int64_t device_bytes,
                      int64_t host_bytes) {
  const int64_t usable = profile.memory_bytes() - profile.reserved_bytes();
  if (profile.one_memory()) return device_bytes + host_bytes <= usable;
  return device_bytes <= usable && host_bytes <= ShareOfHost(profile, devices).memory_bytes;
}

/// What a rank may take: what the driver reports, less what is reserved.
inline int64_t UsableBytes(const v1::DeviceProfile& profile) {
  return profile.memory_bytes() - profile.reserved_bytes();
}

}  // namespace metp
