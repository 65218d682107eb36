#pragma once

// Which devices the kernels run on. Standard C++ only: a worker's daemon looks at its GPU without CUDA.

#include <cstddef>
#include <string>

namespace metp::cuda {

/// Ampere: bf16 on tensor cores, asynchronous copies.
inline constexpr int kLeastCapabilityMajor = 8;

/// Shared memory that a block may have on the smallest device supported (8.0: 163 KiB), in bytes.
inline constexpr size_t kMaxSharedBytes = size_t{163} * 1024;

/// Shared memory that a block may have on a device of this compute capability, in bytes. (CUDA Programming Guide, "Compute
/// Capabilities".) What came after that table is taken for a large device; the runtime knows.
constexpr size_t SharedBytesOf(int major, int minor) {
  const bool large = major == 8 ? minor == 0 || minor == 7 : major != 12;
  return (!large ? 99 : major == 8 ? 163 : 227) * size_t{1024};
}

/// Why kernels do not run on a device of this compute capability whose blocks may have `shared_bytes` of shared memory;
/// empty where they do.
inline std::string WhyUnfit(int major, int minor, size_t shared_bytes) {
  const std::string found = "compute capability " + std::to_string(major) + "." + std::to_string(minor);
  const std::string fit = " needed: A100, H100, H200, B200";
  if (major < kLeastCapabilityMajor) {
    return found + ", " + std::to_string(kLeastCapabilityMajor) + ".0 or newer" + fit;
  }
  if (major == 8 && minor == 7) return found + " is a Tegra's, whose code is another; one of these is" + fit;
  if (shared_bytes >= kMaxSharedBytes) return "";
  return found + " has " + std::to_string(shared_bytes / 1024) + " KiB of shared memory a block, " +
         std::to_string(kMaxSharedBytes / 1024) + " KiB" + fit;
}

}  // namespace metp::cuda
