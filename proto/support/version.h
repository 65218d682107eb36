#pragma once

// The version that every program shows and exchanges: CMake's project version.

namespace metp {

inline constexpr char kVersion[] = METP_VERSION;

}  // namespace metp
