#pragma once

// Where watched memory and its shadow lie. Fixed addresses, so that a check is a subtraction and a comparison; reserved as
// a whole and backed by pages where they are touched. Nothing else is mapped there by Linux on x86-64.
//
// Shadow of device memory: a state for each byte, four cells (shadow.h) for each four bytes.

#include <cstddef>
#include <cstdint>

namespace metp::emulation {

inline constexpr uintptr_t kTiB = uintptr_t{1} << 40;
inline constexpr uintptr_t kDeviceBase = 32 * kTiB;
inline constexpr size_t kDeviceBytes = size_t{1} << 38;
inline constexpr uintptr_t kStateBase = 33 * kTiB;
inline constexpr uintptr_t kCellBase = 34 * kTiB;
inline constexpr uintptr_t kActorBase = 38 * kTiB;
inline constexpr uintptr_t kOperationBase = 39 * kTiB;

inline constexpr int kCellsPerWord = 4;
inline constexpr size_t kCellBytesPerByte = kCellsPerWord * sizeof(uint64_t) / 4;

enum State : uint8_t { kOutside = 0, kUnwritten = 1, kWritten = 2 };

inline bool InDevice(const void* at) { return reinterpret_cast<uintptr_t>(at) - kDeviceBase < kDeviceBytes; }
inline uint8_t* DeviceStates(uintptr_t at) {
  return reinterpret_cast<uint8_t*>(at - kDeviceBase + kStateBase);
}
/// Of the word that holds `at`.
inline uint64_t* DeviceCells(uintptr_t at) {
  return reinterpret_cast<uint64_t*>(kCellBase + (at - kDeviceBase) / 4 * kCellsPerWord * sizeof(uint64_t));
}

/// Once, before the first use of any of it. Ends the process where the addresses are taken.
void ReserveAddressSpace();

}  // namespace metp::emulation
