#pragma once

// The dynamic shared memory of the block in hand: metp::cuda::metp_shared of the host thread, and its shadow.

#include <cstddef>
#include <cstdint>

namespace metp::emulation {

class SharedMemory {
 public:
  SharedMemory() = default;
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory();

  /// A new block's: nothing is written, and what lies beyond `bytes` is out of bounds. Sets `here`.
  void Begin(size_t bytes);
  /// All accesses so far have happened before all to come.
  void ForgetAccesses();

 private:
  uint8_t* states_ = nullptr;
  uint64_t* cells_ = nullptr;
  size_t open_ = 0;  // bytes that may be accessed
};

}  // namespace metp::emulation
