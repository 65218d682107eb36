// Launches: checked as a device of compute capability 8.0 would, then run block after block on the stream's thread.

#include <map>
#include <mutex>
#include <utility>

#include "tests/cuda_emulation/block.h"
#include "tests/cuda_emulation/device.h"
#include "tests/cuda_emulation/fault_text.h"
#include "tests/cuda_emulation/stream.h"
#include "tests/cuda_emulation/symbols.h"

__thread uint3 blockDim = {};
__thread uint3 gridDim = {};

namespace metp::emulation {
namespace {

constexpr size_t kSharedWithoutAsking = 48 * 1024;

/// Shared memory that kernels have asked for.
struct Asked {
  std::mutex mutex;
  std::map<const void*, size_t> bytes;
};
Asked& AllAsked() {
  static Asked* const asked = new Asked;
  return *asked;
}

size_t SharedLimit(const void* kernel) {
  Asked& asked = AllAsked();
  const std::lock_guard lock(asked.mutex);
  const auto it = asked.bytes.find(kernel);
  return it == asked.bytes.end() ? kSharedWithoutAsking : it->second;
}

cudaError_t Check(const cudaLaunchConfig_t& config, const void* kernel) {
  const dim3& grid = config.gridDim;
  const dim3& block = config.blockDim;
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > 0x7fffffff || grid.y > 65535 || grid.z > 65535) {
    return cudaErrorInvalidConfiguration;
  }
  if (block.x == 0 || block.y == 0 || block.z == 0 || block.x > kMaxThreads || block.y > kMaxThreads ||
      block.z > 64 || uint64_t{block.x} * block.y * block.z > kMaxThreads) {
    return cudaErrorInvalidConfiguration;
  }
  return config.dynamicSmemBytes > SharedLimit(kernel) ? cudaErrorInvalidValue : cudaSuccess;
}

void RunGrid(const KernelCall& call, uint3 grid, uint3 block, size_t shared_bytes, int device) {
  gridDim = grid;
  blockDim = block;
  here.parameters_low = reinterpret_cast<uintptr_t>(&call);
  here.parameters_bytes = call.bytes();
  Block& runner = Block::OfThread();
  uint32_t number = 0;
  for (uint32_t z = 0; z < grid.z; ++z) {
    for (uint32_t y = 0; y < grid.y; ++y) {
      for (uint32_t x = 0; x < grid.x; ++x) {
        if (!runner.Run(call, {x, y, z}, number++, shared_bytes))
          return BreakDevice(device, cudaErrorLaunchFailure);
      }
    }
  }
}

}  // namespace

bool OwnVariable(uintptr_t at) {
  return at - reinterpret_cast<uintptr_t>(&blockDim) < sizeof(blockDim) ||
         at - reinterpret_cast<uintptr_t>(&gridDim) < sizeof(gridDim);
}

cudaError_t LaunchKernel(const cudaLaunchConfig_t& config, const void* kernel,
                         std::unique_ptr<KernelCall> call) {
  CUstream_st& stream = StreamOf(config.stream);
  if (const cudaError_t error = DeviceState(stream.device()); error != cudaSuccess) return Result(error);
  if (const cudaError_t error = Check(config, kernel); error != cudaSuccess) return Result(error);
  const uint3 grid = {config.gridDim.x, config.gridDim.y, config.gridDim.z};
  const uint3 block = {config.blockDim.x, config.blockDim.y, config.blockDim.z};
  const std::shared_ptr<const KernelCall> shared = std::move(call);
  EnqueueOperation(stream, {nullptr, kernel, 0, grid, block},
                   [shared, grid, block, bytes = config.dynamicSmemBytes, device = stream.device()] {
                     RunGrid(*shared, grid, block, bytes, device);
                   });
  return cudaSuccess;
}

}  // namespace metp::emulation

using namespace metp::emulation;  // NOLINT: below are C functions only

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  if (const cudaError_t error = DeviceState(); error != cudaSuccess) return Result(error);
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
  if (value < 0 || static_cast<size_t>(value) > SharedOptIn()) return Result(cudaErrorInvalidValue);
  Asked& asked = AllAsked();
  const std::lock_guard lock(asked.mutex);
  asked.bytes[kernel] = static_cast<size_t>(value);
  return cudaSuccess;
}

cudaError_t cudaFuncGetName(const char** name, const void* kernel) {
  *name = MangledName(kernel);
  return *name == nullptr ? Result(cudaErrorInvalidDeviceFunction) : cudaSuccess;
}
