// The emulated devices as the runtime describes them. They are given the smallest architecture that the product supports,
// so that what fits here fits everywhere.

#include "tests/cuda_emulation/device.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <mutex>

#include "tests/cuda_emulation/engine.h"
#include "tests/cuda_emulation/pool.h"
#include "tests/cuda_emulation/stream.h"

namespace metp::emulation {
namespace {

constexpr int kMostDevices = 64;
constexpr int kMultiprocessors = 8;
constexpr size_t kSharedWithoutAsking = 48 * 1024;

struct Devices {
  std::mutex mutex;
  DeviceOptions options;
  std::array<cudaError_t, kMostDevices> broken = {};
  std::array<size_t, kMostDevices> reserved = {};
  size_t pinned = 0;
};
Devices& All() {
  static Devices* const devices = new Devices;
  return *devices;
}

thread_local int current = 0;

cudaError_t Known(int device) {
  Devices& devices = All();
  const std::lock_guard lock(devices.mutex);
  if (devices.options.devices == 0) return cudaErrorNoDevice;
  return device < 0 || device >= devices.options.devices ? cudaErrorInvalidDevice : cudaSuccess;
}

}  // namespace

void Configure(const DeviceOptions& options) {
  Devices& devices = All();
  const std::lock_guard lock(devices.mutex);
  devices.options = options;
  devices.options.devices = std::clamp(options.devices, 0, kMostDevices);
  devices.broken = {};
}

void BreakDevice(cudaError_t error) { BreakDevice(current, error); }

void BreakDevice(int device, cudaError_t error) {
  Devices& devices = All();
  const std::lock_guard lock(devices.mutex);
  devices.broken[static_cast<size_t>(device)] = error;
}

int CurrentDevice() { return current; }

cudaError_t DeviceState() { return DeviceState(current); }

cudaError_t DeviceState(int device) {
  if (const cudaError_t error = Known(device); error != cudaSuccess) return error;
  Devices& devices = All();
  const std::lock_guard lock(devices.mutex);
  return devices.broken[static_cast<size_t>(device)];
}

bool Reserve(int device, size_t bytes) {
  Devices& devices = All();
  const std::lock_guard lock(devices.mutex);
  size_t& reserved = devices.reserved[static_cast<size_t>(device)];
  if (bytes > devices.options.memory_bytes || reserved > devices.options.memory_bytes - bytes) return false;
  reserved += bytes;
  return true;
}

void Unreserve(int device, size_t bytes) {
  Devices& devices = All();
  const std::lock_guard lock(devices.mutex);
  devices.reserved[static_cast<size_t>(device)] -= bytes;
}

bool ReservePinned(size_t bytes) {
  Devices& devices = All();
  const std::lock_guard lock(devices.mutex);
  const size_t most = devices.options.pinned_bytes;
  if (bytes > most || devices.pinned > most - bytes) return false;
  devices.pinned += bytes;
  return true;
}

void UnreservePinned(size_t bytes) {
  Devices& devices = All();
  const std::lock_guard lock(devices.mutex);
  devices.pinned -= bytes;
}

bool Fragments() {
  Devices& devices = All();
  const std::lock_guard lock(devices.mutex);
  return devices.options.fragments;
}

size_t SharedOptIn() {
  Devices& devices = All();
  const std::lock_guard lock(devices.mutex);
  return devices.options.shared_bytes;
}

}  // namespace metp::emulation

using namespace metp::emulation;  // NOLINT: below are C functions only

cudaError_t cudaGetDeviceCount(int* count) {
  Devices& devices = All();
  const std::lock_guard lock(devices.mutex);
  *count = devices.options.devices;
  return *count == 0 ? Result(cudaErrorNoDevice) : cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  *device = current;
  return Result(Known(current));
}

cudaError_t cudaSetDevice(int device) {
  if (const cudaError_t error = Known(device); error != cudaSuccess) return Result(error);
  current = device;
  return Result(DeviceState(device));
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (const cudaError_t error = Known(device); error != cudaSuccess) return Result(error);
  cudaDeviceProp& p = *properties;
  p = {};
  std::snprintf(p.name, sizeof(p.name), "emulated");
  std::snprintf(p.uuid.bytes, sizeof(p.uuid.bytes), "emulated-%d", device % 1000);
  {
    Devices& devices = All();
    const std::lock_guard lock(devices.mutex);
    p.totalGlobalMem = devices.options.memory_bytes;
    p.sharedMemPerBlockOptin = devices.options.shared_bytes;
    p.major = devices.options.major;
    p.minor = devices.options.minor;
  }
  p.sharedMemPerBlock = kSharedWithoutAsking;
  p.sharedMemPerMultiprocessor = p.sharedMemPerBlockOptin + 1024;
  p.regsPerBlock = 65536;
  p.warpSize = 32;
  p.maxThreadsPerBlock = p.maxThreadsDim[0] = p.maxThreadsDim[1] = 1024;
  p.maxThreadsDim[2] = 64;
  p.maxThreadsPerMultiProcessor = 2048;
  p.maxGridSize[0] = 0x7fffffff;
  p.maxGridSize[1] = p.maxGridSize[2] = 65535;
  p.multiProcessorCount = kMultiprocessors;
  p.l2CacheSize = 4 << 20;
  p.memoryBusWidth = 64;
  p.concurrentKernels = p.asyncEngineCount = p.unifiedAddressing = p.memoryPoolsSupported = 1;
  p.pciBusID = device + 1;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  cudaDeviceProp p;
  if (const cudaError_t error = cudaGetDeviceProperties(&p, device); error != cudaSuccess) return error;
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
      *value = p.maxThreadsPerBlock;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      *value = static_cast<int>(p.sharedMemPerBlock);
      break;
    case cudaDevAttrWarpSize:
      *value = p.warpSize;
      break;
    case cudaDevAttrMultiProcessorCount:
      *value = p.multiProcessorCount;
      break;
    case cudaDevAttrComputeCapabilityMajor:
      *value = p.major;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *value = p.minor;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(p.sharedMemPerBlockOptin);
      break;
    case cudaDevAttrMemoryPoolsSupported:
      *value = p.memoryPoolsSupported;
      break;
    default:
      return Result(cudaErrorInvalidValue);
  }
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int device) {
  if (const cudaError_t error = Known(device); error != cudaSuccess) return Result(error);
  if (length < 13) return Result(cudaErrorInvalidValue);
  std::snprintf(id, static_cast<size_t>(length), "0000:%02X:00.0", static_cast<unsigned>(device + 1) & 0xff);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return Result(DeviceState());
}

cudaError_t cudaDeviceSynchronize() {
  if (CUstream_st::InHand() != nullptr) return Result(cudaErrorNotPermitted);
  if (const cudaError_t error = Known(current); error != cudaSuccess) return Result(error);
  DrainDevice(current);
  TrimPools(current);
  return Result(DeviceState());
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) { return cudaRuntimeGetVersion(version); }

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  if (const cudaError_t error = DeviceState(); error != cudaSuccess) return Result(error);
  Devices& devices = All();
  const std::lock_guard lock(devices.mutex);
  *total = devices.options.memory_bytes;
  *free = *total - std::min(*total, devices.reserved[static_cast<size_t>(current)]);
  return cudaSuccess;
}
