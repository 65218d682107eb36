#include "tests/cuda_emulation/address_space.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>

#include "tests/cuda_emulation/operations.h"
#include "tests/cuda_emulation/sanitizers.h"

namespace metp::emulation {
namespace {

void Reserve(uintptr_t base, size_t bytes) {
  void* const wanted = reinterpret_cast<void*>(base);
  void* const got = mmap(wanted, bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  if (got != wanted) {
    std::fprintf(stderr, "cuda emulation: cannot reserve %zu bytes of addresses at %p\n", bytes, wanted);
    std::abort();
  }
  madvise(got, bytes, MADV_DONTDUMP);
}

bool ReserveAll() {
  if (kWatched) {
    Reserve(kDeviceBase, kDeviceBytes);
    Reserve(kStateBase, kDeviceBytes);
    Reserve(kCellBase, kDeviceBytes * kCellBytesPerByte);
    Reserve(kActorBase, kMaxActors * sizeof(Actor));
    Reserve(kOperationBase, kMaxOperations * sizeof(Operation));
  }
  return true;
}

}  // namespace

void ReserveAddressSpace() { [[maybe_unused]] static const bool reserved = ReserveAll(); }

}  // namespace metp::emulation
