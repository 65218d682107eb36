#pragma once

// Allocations of watched memory: device memory, and host memory that the device reaches ("pinned"). New memory is filled
// with 0xff bytes: NaN in every float type, and no legal id.
//
// Each has more than 4 KiB behind it that belongs to nobody. An address that was freed is given out again late, and only
// for the same size, so that who still holds it is told "freed". Under a sanitizer: the C library's memory.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace metp::emulation {

struct Allocation {
  size_t bytes = 0;
  bool live = true;
  bool host = false;           // pinned: what the host does there is not looked at
  std::shared_ptr<void> pool;  // kept while the allocation lives
};

/// Thread-safe, all of them.
void* Allocate(size_t bytes, bool host, std::shared_ptr<void> pool);
/// The live allocation that `data` lies in; false where there is none.
bool FindAround(const void* data, Allocation& found);
/// Marks it as going, so that it is not freed twice; false where there is no live one.
bool TakeOut(const void* data, Allocation& taken);
/// The end of an allocation that was taken out: a fault if an access is not ordered before the operation in hand.
void Release(void* data, size_t bytes);

/// "at 12 past the end of an allocation of 1000 bytes".
std::string DescribeAddress(uintptr_t at);
bool IsHostMemory(uintptr_t at);

}  // namespace metp::emulation
