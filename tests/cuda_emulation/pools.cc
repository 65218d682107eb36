// Device memory, pools and pinned host memory: the runtime's calls.

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "tests/cuda_emulation/device.h"
#include "tests/cuda_emulation/engine.h"
#include "tests/cuda_emulation/memory.h"
#include "tests/cuda_emulation/pool.h"
#include "tests/cuda_emulation/stream.h"

namespace metp::emulation {
namespace {

constexpr size_t kChunk = 2u << 20;  // what a pool takes from the device at least
constexpr size_t kUnit = 512;        // what an allocation is counted in

size_t Counted(size_t bytes) { return (bytes + kUnit - 1) / kUnit * kUnit; }

struct Pools {
  std::recursive_mutex mutex;  // an account may end while another is changed
  std::map<cudaMemPool_t, std::shared_ptr<Pool>> made;
  std::map<int, std::shared_ptr<Pool>> of_devices;
};
Pools& All() {
  static Pools* const pools = new Pools;
  return *pools;
}

cudaMemPool_t HandleOf(const std::shared_ptr<Pool>& pool) {
  return reinterpret_cast<cudaMemPool_t>(pool.get());
}

std::shared_ptr<Pool> Find(cudaMemPool_t handle) {
  Pools& pools = All();
  const std::lock_guard lock(pools.mutex);
  const auto it = pools.made.find(handle);
  return it == pools.made.end() ? nullptr : it->second;
}

std::shared_ptr<Pool> DefaultPool(int device) {
  Pools& pools = All();
  const std::lock_guard lock(pools.mutex);
  std::shared_ptr<Pool>& pool = pools.of_devices[device];
  if (pool == nullptr) {
    pool = std::make_shared<Pool>(device);
    pools.made[HandleOf(pool)] = pool;
  }
  return pool;
}

cudaError_t AllocateFrom(std::shared_ptr<Pool> pool, void** data, size_t bytes) {
  *data = nullptr;
  if (pool == nullptr) return Result(cudaErrorInvalidValue);
  if (const cudaError_t error = DeviceState(pool->device()); error != cudaSuccess) return Result(error);
  if (bytes == 0) return cudaSuccess;
  {
    const std::lock_guard lock(All().mutex);
    if (!pool->Take(Counted(bytes))) return Result(cudaErrorMemoryAllocation);
  }
  *data = Allocate(bytes, false, std::move(pool));
  return cudaSuccess;
}

/// Off the account at once, gone in the stream's order.
cudaError_t FreeOn(CUstream_st& stream, void* data) {
  Allocation taken;
  if (data == nullptr) return cudaSuccess;
  if (!TakeOut(data, taken) || taken.host) return Result(cudaErrorInvalidValue);
  {
    const std::lock_guard lock(All().mutex);
    std::static_pointer_cast<Pool>(taken.pool)->Give(Counted(taken.bytes));
    taken.pool.reset();
  }
  EnqueueOperation(stream, {"cudaFreeAsync", nullptr, 0, {}, {}},
                   [data, bytes = taken.bytes] { Release(data, bytes); });
  return Result(DeviceState(stream.device()));
}

}  // namespace

Pool::~Pool() { Unreserve(device_, reserved_); }

bool Pool::Take(size_t bytes) {
  if (used_ + pieces_ + bytes > reserved_) {
    const size_t missing = used_ + pieces_ + bytes - reserved_;
    const size_t chunks = (missing + kChunk - 1) / kChunk * kChunk;
    if (Reserve(device_, chunks)) {
      reserved_ += chunks;
    } else if (Reserve(device_, missing)) {
      reserved_ += missing;
    } else {
      return false;
    }
  }
  used_ += bytes;
  return true;
}

void Pool::Give(size_t bytes) {
  used_ -= bytes;
  if (Fragments()) pieces_ += bytes;
}

void Pool::TrimTo(size_t keep) {
  const size_t kept = std::max(keep, used_);
  if (kept >= reserved_) return;
  pieces_ = 0;
  Unreserve(device_, reserved_ - kept);
  reserved_ = kept;
}

void TrimPools(int device) {
  Pools& pools = All();
  const std::lock_guard lock(pools.mutex);
  for (const auto& [handle, pool] : pools.made) {
    if (pool->device() == device) pool->TrimTo(pool->threshold());
  }
}

}  // namespace metp::emulation

using namespace metp::emulation;  // NOLINT: below are C functions only

cudaError_t cudaMallocAsync(void** data, size_t bytes, cudaStream_t stream) {
  return AllocateFrom(DefaultPool(StreamOf(stream).device()), data, bytes);
}
cudaError_t cudaMallocFromPoolAsync(void** data, size_t bytes, cudaMemPool_t pool, cudaStream_t stream) {
  return AllocateFrom(Find(pool), data, bytes);
}
cudaError_t cudaFreeAsync(void* data, cudaStream_t stream) { return FreeOn(StreamOf(stream), data); }

cudaError_t cudaMalloc(void** data, size_t bytes) {
  return AllocateFrom(DefaultPool(CurrentDevice()), data, bytes);
}
cudaError_t cudaFree(void* data) {
  if (const cudaError_t error = cudaDeviceSynchronize(); error != cudaSuccess) return error;
  if (const cudaError_t error = FreeOn(StreamOf(nullptr), data); error != cudaSuccess) return error;
  return cudaStreamSynchronize(nullptr);
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  if (const cudaError_t error = DeviceState(device); error != cudaSuccess) return Result(error);
  *pool = HandleOf(DefaultPool(device));
  return cudaSuccess;
}

cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* properties) {
  if (properties->allocType != cudaMemAllocationTypePinned ||
      properties->location.type != cudaMemLocationTypeDevice) {
    return Result(cudaErrorInvalidValue);
  }
  if (const cudaError_t error = DeviceState(properties->location.id); error != cudaSuccess)
    return Result(error);
  auto made = std::make_shared<Pool>(properties->location.id);
  *pool = HandleOf(made);
  Pools& pools = All();
  const std::lock_guard lock(pools.mutex);
  pools.made[*pool] = std::move(made);
  return cudaSuccess;
}

cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
  Pools& pools = All();
  const std::lock_guard lock(pools.mutex);
  return pools.made.erase(pool) == 0 ? Result(cudaErrorInvalidValue)
                                     : cudaSuccess;  // goes with its last allocation
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  const std::shared_ptr<Pool> found = Find(pool);
  if (found == nullptr) return Result(cudaErrorInvalidValue);
  const std::lock_guard lock(All().mutex);
  if (attribute == cudaMemPoolAttrReleaseThreshold) found->set_threshold(*static_cast<uint64_t*>(value));
  return cudaSuccess;
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  const std::shared_ptr<Pool> found = Find(pool);
  if (found == nullptr) return Result(cudaErrorInvalidValue);
  const std::lock_guard lock(All().mutex);
  uint64_t& bytes = *static_cast<uint64_t*>(value);
  switch (attribute) {
    case cudaMemPoolAttrReleaseThreshold:
      bytes = found->threshold();
      break;
    case cudaMemPoolAttrReservedMemCurrent:
      bytes = found->reserved();
      break;
    case cudaMemPoolAttrUsedMemCurrent:
      bytes = found->used();
      break;
    default:
      return Result(cudaErrorNotSupported);
  }
  return cudaSuccess;
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t bytes_to_keep) {
  const std::shared_ptr<Pool> found = Find(pool);
  if (found == nullptr) return Result(cudaErrorInvalidValue);
  const std::lock_guard lock(All().mutex);
  found->TrimTo(bytes_to_keep);
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* data) {
  if (const cudaError_t error = DeviceState(); error != cudaSuccess) return Result(error);
  void* const at = const_cast<void*>(data);
  Allocation found;
  if (!FindAround(data, found)) {
    *attributes = {cudaMemoryTypeUnregistered, -2, nullptr, at};
  } else if (found.host) {
    *attributes = {cudaMemoryTypeHost, CurrentDevice(), at, at};
  } else {
    *attributes = {cudaMemoryTypeDevice, std::static_pointer_cast<Pool>(found.pool)->device(), at, nullptr};
  }
  return cudaSuccess;
}

cudaError_t cudaMallocHost(void** data, size_t bytes) {
  return cudaHostAlloc(data, bytes, cudaHostAllocDefault);
}
cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned int flags) {
  if (const cudaError_t error = DeviceState(); error != cudaSuccess) return Result(error);
  *data = nullptr;
  if (bytes == 0) return cudaSuccess;
  if (!ReservePinned(bytes)) return Result(cudaErrorMemoryAllocation);
  *data = Allocate(bytes, true, nullptr);
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* data) {
  if (data == nullptr) return cudaSuccess;
  if (!IsHostMemory(reinterpret_cast<uintptr_t>(data))) return Result(cudaErrorInvalidValue);
  DrainDevice(CurrentDevice());
  Allocation taken;
  if (!TakeOut(data, taken)) return Result(cudaErrorInvalidValue);
  Release(data, taken.bytes);
  UnreservePinned(taken.bytes);
  return cudaSuccess;
}
cudaError_t cudaHostRegister(void* data, size_t bytes, unsigned int flags) { return Result(DeviceState()); }
cudaError_t cudaHostUnregister(void* data) { return Result(DeviceState()); }
