#pragma once

// Generated from profiles/*.yaml by CMakeLists.txt.

#include <span>

namespace metp {

struct BuiltInProfile {
  const char* name;
  const char* text;
};

extern const std::span<const BuiltInProfile> kBuiltInProfiles;  // sorted by name

}  // namespace metp
