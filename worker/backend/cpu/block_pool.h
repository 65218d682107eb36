#pragma once

// Keeps freed device memory for the next tensor of the same size: a training step asks for the same sizes
// over and over, and fresh pages from the system cost a fault and a clearing each. What is kept never makes
// the process larger than it has already been: live and kept bytes together stay within the most that was
// ever live, so the ledger's peak stays the honest figure. Owned by CpuBackend; any thread (tensors may be
// dropped elsewhere than on the compute thread).

#include <cstdint>
#include <map>

#include "proto/support/mutex.h"

namespace metp::cpu {

class BlockPool {
 public:
  BlockPool() = default;
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;
  ~BlockPool();

  /// 64-byte aligned, contents undefined; nullptr when the system has none left. Large blocks start at a
  /// multiple of 2 MiB and ask for huge pages: memory-bound operations were measured up to twice as fast on
  /// them.
  void* Take(int64_t bytes) METP_EXCLUDES(mutex_);
  /// `bytes` as given to Take.
  void Give(void* data, int64_t bytes) METP_EXCLUDES(mutex_);
  /// Freed, not yet given out again.
  int64_t kept_bytes() const METP_EXCLUDES(mutex_);

 private:
  void DropKept(int64_t above) METP_REQUIRES(mutex_);

  mutable Mutex mutex_;
  std::multimap<int64_t, void*> kept_ METP_GUARDED_BY(mutex_);  // by size
  int64_t kept_bytes_ METP_GUARDED_BY(mutex_) = 0;
  int64_t live_bytes_ METP_GUARDED_BY(mutex_) = 0;
  int64_t most_live_ METP_GUARDED_BY(mutex_) = 0;
};

}  // namespace metp::cpu
