#pragma once

// Who touches memory: an operation is what one item of a stream does (a launch, a copy, a library's call); an actor is one
// block of it. Both are numbered over the process from 1, in the order in which they begin, and never forgotten, so that a
// cell of the shadow can name an actor in 28 bits.

#include <cuda_runtime.h>

#include <cstdint>
#include <string>

#include "tests/cuda_emulation/address_space.h"
#include "tests/cuda_emulation/sanitizers.h"

namespace metp::emulation {

struct Operation {
  const char* name;    // null: `kernel` has one
  const void* kernel;  // its function
  uint32_t stream;     // its slot, see clock.h
  uint3 grid, block;
};
inline constexpr size_t kMaxOperations = size_t{1} << 26;

struct Actor {
  uint32_t operation;
  uint32_t block;  // its number in the grid, x fastest
  uint32_t stream;
  uint32_t unused;
};
inline constexpr size_t kMaxActors = size_t{1} << 28;

// Under a sanitizer there are no tables (nor cells to name what is in them): each host thread has what it is about.
extern __thread Operation unwatched_operation;
extern __thread Actor unwatched_actor;

inline const Actor& ActorAt(uint64_t number) {
  return kWatched ? reinterpret_cast<const Actor*>(kActorBase)[number] : unwatched_actor;
}
inline const Operation& OperationAt(uint32_t number) {
  return kWatched ? reinterpret_cast<const Operation*>(kOperationBase)[number] : unwatched_operation;
}

/// Thread-safe. End the process when there have been too many.
uint32_t NewOperation(const Operation& operation);
uint64_t NewActor(uint32_t operation, uint32_t block, uint32_t stream);

/// "kernel Scale<float>" or "cudaMemcpyAsync".
std::string NameOf(const Operation& operation);
/// "(x,y,z)" of the number of a block in a grid, or of a thread in a block.
std::string Coordinates(uint32_t number, uint3 extent);

}  // namespace metp::emulation
