#include "tests/cuda_emulation/operations.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>

#include "tests/cuda_emulation/symbols.h"

namespace metp::emulation {
namespace {

std::atomic<uint64_t> operations{1}, actors{1};

uint64_t Next(std::atomic<uint64_t>& counter, uint64_t limit, const char* what) {
  const uint64_t number = counter.fetch_add(1, std::memory_order_relaxed);
  if (number < limit) return number;
  std::fprintf(stderr, "cuda emulation: more than %llu %s in one process\n",
               static_cast<unsigned long long>(limit), what);
  std::abort();
}

}  // namespace

__thread Operation unwatched_operation = {};
__thread Actor unwatched_actor = {};

uint32_t NewOperation(const Operation& operation) {
  const uint64_t number = Next(operations, kMaxOperations, "operations");
  (kWatched ? reinterpret_cast<Operation*>(kOperationBase)[number] : unwatched_operation) = operation;
  return static_cast<uint32_t>(number);
}

uint64_t NewActor(uint32_t operation, uint32_t block, uint32_t stream) {
  const uint64_t number = Next(actors, kMaxActors, "blocks");
  (kWatched ? reinterpret_cast<Actor*>(kActorBase)[number] : unwatched_actor) = {operation, block, stream, 0};
  return number;
}

std::string NameOf(const Operation& operation) {
  return operation.name != nullptr ? operation.name : "kernel " + KernelName(operation.kernel);
}

std::string Coordinates(uint32_t number, uint3 extent) {
  const uint32_t x = number % extent.x, y = number / extent.x % extent.y, z = number / extent.x / extent.y;
  return "(" + std::to_string(x) + "," + std::to_string(y) + "," + std::to_string(z) + ")";
}

}  // namespace metp::emulation
