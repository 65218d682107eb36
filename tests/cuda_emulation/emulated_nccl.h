#pragma once

// What tests do to the emulated NCCL. Ranks are named by their device, which no two of a communicator share.

#include <chrono>

namespace metp::emulation {

/// As though the process on `device` died: in every communicator that it is in by now, it does nothing more and its own state
/// becomes ncclSystemError, its peers' ncclRemoteError. All wait with their work in hand until they abort.
void BreakNccl(int device);

/// The next group that starts on `device` starts later by `delay`. Once.
void DelayNccl(int device, std::chrono::milliseconds delay);

}  // namespace metp::emulation
