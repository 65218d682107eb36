#pragma once

// Device memory from a pool of the driver's own, ordered on one stream: a tensor that is freed may be given out again at
// once, because whatever uses it next on the stream runs behind what used it last. What the pool
// has from the device it keeps, until there is none left for a tensor or the pool goes.

#include <cuda_runtime.h>

#include <cstdint>

namespace metp::cuda {

class MemoryPool {
 public:
  /// Both must outlive the pool.
  MemoryPool(int device, cudaStream_t stream);
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;
  /// Everything taken has been given back.
  ~MemoryPool();

  /// 256-byte aligned, for use on the stream; nullptr when the device has none left, even with what the pool kept.
  void* Take(int64_t bytes);
  void Give(void* data);
  /// What the pool has from the device now.
  int64_t reserved_bytes() const;

 private:
  void* TryTake(int64_t bytes);

  const cudaStream_t stream_;
  cudaMemPool_t pool_ = nullptr;
};

}  // namespace metp::cuda
