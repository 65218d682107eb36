#pragma once

// What the calling host thread is doing on the device, as the checks of every access need it at hand. All zero on a thread
// that is not a stream's, and between a stream's operations.

#include <cstddef>
#include <cstdint>

namespace metp::emulation {

/// What a block may have, and the size of metp::cuda::metp_shared: the largest of any architecture.
inline constexpr size_t kSharedBytes = 232448;

/// Who accesses, packed as in a cell of the shadow: from the lowest bit, 4 bits say which bytes of the word, one that the
/// access is atomic, then the thread in its block, the tick, the actor.
///
/// A block's ticks count its synchronisations, of any kind. What a thread did up to some tick has happened before what
/// another does now if a barrier, or a synchronisation of their warp, came at that tick or later: the floors below.
inline constexpr uint64_t kAllBytes = 0xf;
inline constexpr uint64_t kAtomicBit = 1 << 4;
inline constexpr int kThreadShift = 5, kTickShift = 15, kActorShift = 36;
inline constexpr uint64_t kThreadMask = uint64_t{0x3ff} << kThreadShift;
inline constexpr uint64_t kWarpMask = uint64_t{0x3e0} << kThreadShift;
inline constexpr uint64_t kMaxTick = (uint64_t{1} << (kActorShift - kTickShift)) - 1;

struct Here {
  uint64_t stamp;         // of an access now; 0: no operation in hand
  uint32_t block_floor;   // accesses of the block up to this tick have happened before
  uint32_t warp_floor;    // the same for those of the thread's warp
  const uint32_t* known;  // the same for each of its lanes; null: nothing beyond warp_floor
  uint32_t operation, block;
  const uint32_t* clock;  // of the stream: the last operation of each slot that has happened before
  uint32_t slots;         // of `clock`
  uint32_t reported;      // bits of the kinds of fault that this operation has given rise to
  uintptr_t shared_base;  // metp_shared; 0: the operation has none
  uint32_t shared_bytes;  // of the launch
  uint8_t* shared_states;
  uint64_t* shared_cells;
  uintptr_t stack_low, stack_bytes;            // of the fiber in hand
  uintptr_t parameters_low, parameters_bytes;  // the kernel's arguments
  bool in_kernel;
};

extern __thread Here here;

}  // namespace metp::emulation
