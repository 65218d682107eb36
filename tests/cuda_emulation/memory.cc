#include "tests/cuda_emulation/memory.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <utility>

#include "tests/cuda_emulation/address_space.h"
#include "tests/cuda_emulation/here.h"
#include "tests/cuda_emulation/sanitizers.h"
#include "tests/cuda_emulation/shadow.h"

namespace metp::emulation {
namespace {

constexpr size_t kAlignment = 512;
constexpr size_t kGuard = 4096;
constexpr size_t kHeldBack = 4;            // freed addresses of a size before one is given out again
constexpr size_t kIdleBytes = 256u << 20;  // of freed addresses that keep their pages

size_t SpanOf(size_t bytes) { return (bytes + kGuard + kAlignment - 1) / kAlignment * kAlignment; }

struct Memory {
  std::mutex mutex;
  uintptr_t next = kDeviceBase + kGuard;
  std::map<uintptr_t, Allocation> allocations;    // freed ones too, until their address is given out again
  std::map<size_t, std::deque<uintptr_t>> freed;  // by span, the oldest first
  size_t idle_bytes = 0;                          // of all of `freed`
};
Memory& All() {
  static Memory* const memory = new Memory;
  return *memory;
}

/// Under the mutex.
uintptr_t TakeAddress(Memory& memory, size_t span) {
  if (const auto it = memory.freed.find(span); it != memory.freed.end() && it->second.size() > kHeldBack) {
    const uintptr_t at = it->second.front();
    it->second.pop_front();
    memory.idle_bytes -= span;
    return at;
  }
  const uintptr_t at = std::exchange(memory.next, memory.next + span);
  if (memory.next > kDeviceBase + kDeviceBytes) {
    std::fprintf(stderr, "cuda emulation: all device addresses of the process are used up\n");
    std::abort();
  }
  return at;
}

/// The pages that lie wholly in a range go back to the system: zero when touched again.
void DropPages(uintptr_t begin, size_t bytes) {
  constexpr uintptr_t kPage = 4096;
  const uintptr_t first = (begin + kPage - 1) / kPage * kPage, last = (begin + bytes) / kPage * kPage;
  if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

/// Nobody will have this address again. Under the mutex.
void Retire(Memory& memory, uintptr_t at, size_t span) {
  DropPages(at, span);
  DropPages(reinterpret_cast<uintptr_t>(DeviceStates(at)), span);
  DropPages(reinterpret_cast<uintptr_t>(DeviceCells(at)), span * kCellBytesPerByte);
  memory.allocations.erase(at);
}

void CheckAndForgetAccesses(uintptr_t at, size_t bytes) {
  uint64_t* const cells = DeviceCells(at);
  const uint64_t mine = here.stamp | kAllBytes;
  for (size_t i = 0; i < (bytes + 3) / 4 * kCellsPerWord; ++i) {
    if (cells[i] == 0) continue;
    if (here.stamp != 0 && Races(cells[i], mine)) {
      ReportRace(at + i / kCellsPerWord * 4, mine, true, cells[i], i % kCellsPerWord < 2);
    }
    cells[i] = 0;
  }
}

void* AllocateUnwatched(size_t bytes) {
  void* data = nullptr;
  if (posix_memalign(&data, kAlignment, bytes) != 0) std::abort();
  return data;
}

/// The last allocation that begins at or before `at`, or null. Under the mutex.
const std::pair<const uintptr_t, Allocation>* Before(const Memory& memory, uintptr_t at) {
  const auto it = memory.allocations.upper_bound(at);
  return it == memory.allocations.begin() ? nullptr : &*std::prev(it);
}

}  // namespace

void* Allocate(size_t bytes, bool host, std::shared_ptr<void> pool) {
  ReserveAddressSpace();
  Memory& memory = All();
  std::unique_lock lock(memory.mutex);
  const uintptr_t at =
      kWatched ? TakeAddress(memory, SpanOf(bytes)) : reinterpret_cast<uintptr_t>(AllocateUnwatched(bytes));
  memory.allocations[at] = {bytes, true, host, std::move(pool)};
  lock.unlock();
  void* const data = reinterpret_cast<void*>(at);
  std::memset(data, 0xff, bytes);
  if (kWatched) std::memset(DeviceStates(at), host ? kWritten : kUnwritten, bytes);
  return data;
}

bool FindAround(const void* data, Allocation& found) {
  Memory& memory = All();
  const std::lock_guard lock(memory.mutex);
  const uintptr_t at = reinterpret_cast<uintptr_t>(data);
  const auto* const before = Before(memory, at);
  if (before == nullptr || !before->second.live || at >= before->first + before->second.bytes) return false;
  found = before->second;
  return true;
}

bool TakeOut(const void* data, Allocation& taken) {
  Memory& memory = All();
  const std::lock_guard lock(memory.mutex);
  const auto it = memory.allocations.find(reinterpret_cast<uintptr_t>(data));
  if (it == memory.allocations.end() || !it->second.live) return false;
  taken = std::move(it->second);
  it->second = {taken.bytes, false, taken.host, nullptr};
  return true;
}

void Release(void* data, size_t bytes) {
  const uintptr_t at = reinterpret_cast<uintptr_t>(data);
  Memory& memory = All();
  if (!kWatched) {
    {
      const std::lock_guard lock(memory.mutex);
      memory.allocations.erase(at);
    }
    std::free(data);
    return;
  }
  CheckAndForgetAccesses(at, bytes);
  std::memset(DeviceStates(at), kOutside, bytes);
  const size_t span = SpanOf(bytes);
  const std::lock_guard lock(memory.mutex);
  if (memory.idle_bytes + span > kIdleBytes) return Retire(memory, at, span);
  memory.freed[span].push_back(at);
  memory.idle_bytes += span;
}

std::string DescribeAddress(uintptr_t at) {
  Memory& memory = All();
  const std::lock_guard lock(memory.mutex);
  const auto* const before = Before(memory, at);
  const auto after = memory.allocations.upper_bound(at);
  const auto size = [](const Allocation& allocation) {
    return (allocation.live ? "an allocation of " : "a freed allocation of ") +
           std::to_string(allocation.bytes) + " bytes";
  };
  if (before != nullptr && at < before->first + before->second.bytes) {
    return "at " + std::to_string(at - before->first) + " of " + size(before->second);
  }
  const uintptr_t end = before == nullptr ? kDeviceBase : before->first + before->second.bytes;
  if (after != memory.allocations.end() && (before == nullptr || after->first - at < at - end)) {
    return "at " + std::to_string(after->first - at) + " before " + size(after->second);
  }
  if (before == nullptr) return "at no allocation";
  return "at " + std::to_string(at - end) + " past the end of " + size(before->second);
}

bool IsHostMemory(uintptr_t at) {
  Memory& memory = All();
  const std::lock_guard lock(memory.mutex);
  const auto* const before = Before(memory, at);
  return before != nullptr && before->second.host && at < before->first + before->second.bytes;
}

}  // namespace metp::emulation
