#include "worker/backend/cpu/block_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>

namespace metp::cpu {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;

void* FromSystem(int64_t bytes) {
  const int64_t alignment = bytes >= kHugePage ? kHugePage : 64;
  void* data = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  // Advice only: where huge pages are off it changes nothing.
  if (data != nullptr && bytes >= kHugePage) madvise(data, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
  return data;
}

}  // namespace

BlockPool::~BlockPool() {
  MutexLock lock(mutex_);
  DropKept(0);
}

void* BlockPool::Take(int64_t bytes) {
  MutexLock lock(mutex_);
  live_bytes_ += bytes;
  most_live_ = std::max(most_live_, live_bytes_);
  if (auto it = kept_.find(bytes); it != kept_.end()) {
    void* data = it->second;
    kept_bytes_ -= bytes;
    kept_.erase(it);
    return data;
  }
  DropKept(most_live_ - live_bytes_);
  void* data = FromSystem(bytes);
  if (data == nullptr) {
    DropKept(0);
    data = FromSystem(bytes);
  }
  if (data == nullptr) live_bytes_ -= bytes;
  return data;
}

void BlockPool::Give(void* data, int64_t bytes) {
  MutexLock lock(mutex_);
  live_bytes_ -= bytes;
  kept_bytes_ += bytes;
  kept_.emplace(bytes, data);
}

int64_t BlockPool::kept_bytes() const {
  MutexLock lock(mutex_);
  return kept_bytes_;
}

// Largest first: few system calls, and small blocks are the ones asked for most often.
void BlockPool::DropKept(int64_t above) {
  while (kept_bytes_ > above) {
    auto it = std::prev(kept_.end());
    kept_bytes_ -= it->first;
    std::free(it->second);
    kept_.erase(it);
  }
}

}  // namespace metp::cpu
