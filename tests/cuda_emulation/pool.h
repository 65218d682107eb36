#pragma once

// A memory pool's account. What a pool reserved from the device it keeps when memory is freed, down to its threshold at
// the next synchronisation; what is freed counts as free from the call on, as for work behind it on the same stream.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <memory>

namespace metp::emulation {

class Pool {
 public:
  explicit Pool(int device) : device_(device) {}
  ~Pool();
  int device() const { return device_; }
  /// Under a lock of all pools, as all below.
  bool Take(size_t bytes);
  void Give(size_t bytes);
  void TrimTo(size_t keep);
  void set_threshold(uint64_t bytes) { threshold_ = bytes; }
  uint64_t threshold() const { return threshold_; }
  uint64_t reserved() const { return reserved_; }
  uint64_t used() const { return used_; }

 private:
  const int device_;
  uint64_t threshold_ = 0;
  size_t reserved_ = 0, used_ = 0;
  size_t pieces_ = 0;  // reserved, not used, and of no use before the pool is trimmed
};

/// What a synchronisation with the device does to its pools.
void TrimPools(int device);

}  // namespace metp::emulation
