// Copies and fills. Either end that is watched memory is checked, whatever the kind says; a kind that contradicts the
// addresses is refused.

#include <cstring>

#include "tests/cuda_emulation/device.h"
#include "tests/cuda_emulation/engine.h"
#include "tests/cuda_emulation/memory.h"
#include "tests/cuda_emulation/sanitizers.h"
#include "tests/cuda_emulation/shadow.h"
#include "tests/cuda_emulation/stream.h"

namespace metp::emulation {
namespace {

struct Rows {
  size_t width, height, to_pitch, from_pitch;
};
constexpr size_t kMostPitch = 0x7fffffff;  // of copies and fills in two dimensions: every device's memPitch

void CopyRows(char* to, const char* from, const Rows& rows) {
  for (size_t i = 0; i < rows.height; ++i, to += rows.to_pitch, from += rows.from_pitch) {
    Read(from, rows.width);
    Write(to, rows.width);
    std::memmove(to, from, rows.width);
  }
}

void FillRows(char* to, int value, const Rows& rows) {
  for (size_t i = 0; i < rows.height; ++i, to += rows.to_pitch) {
    Write(to, rows.width);
    std::memset(to, value, rows.width);
  }
}

/// The device's end must be the device's, the host's must not. (Not known under a sanitizer.)
bool Agrees(const void* at, bool device) {
  if (!kWatched) return true;
  return (InDevice(at) && !IsHostMemory(reinterpret_cast<uintptr_t>(at))) == device;
}

bool KindAgrees(const void* to, const void* from, cudaMemcpyKind kind) {
  if (kind == cudaMemcpyDefault) return true;
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  return Agrees(to, to_device) && Agrees(from, from_device);
}

cudaError_t Copy(const char* name, void* to, const void* from, const Rows& rows, cudaMemcpyKind kind,
                 cudaStream_t stream) {
  if (const cudaError_t error = DeviceState(StreamOf(stream).device()); error != cudaSuccess)
    return Result(error);
  if (rows.width == 0 || rows.height == 0) return cudaSuccess;
  if (!KindAgrees(to, from, kind)) return Result(cudaErrorInvalidValue);
  if (rows.height > 1 && (rows.to_pitch < rows.width || rows.from_pitch < rows.width)) {
    return Result(cudaErrorInvalidValue);
  }
  Enqueue(stream, name, [=] { CopyRows(static_cast<char*>(to), static_cast<const char*>(from), rows); });
  return cudaSuccess;
}

cudaError_t Fill(const char* name, void* to, int value, const Rows& rows, cudaStream_t stream) {
  if (const cudaError_t error = DeviceState(StreamOf(stream).device()); error != cudaSuccess)
    return Result(error);
  if (rows.width == 0 || rows.height == 0) return cudaSuccess;
  if (!Agrees(to, true)) return Result(cudaErrorInvalidValue);
  if (rows.height > 1 && rows.to_pitch < rows.width) return Result(cudaErrorInvalidValue);
  Enqueue(stream, name, [=] { FillRows(static_cast<char*>(to), value, rows); });
  return cudaSuccess;
}

}  // namespace
}  // namespace metp::emulation

using namespace metp::emulation;  // NOLINT: below are C functions only

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  const cudaError_t error = Copy("cudaMemcpy", to, from, {bytes, 1, bytes, bytes}, kind, nullptr);
  return error != cudaSuccess ? error : cudaStreamSynchronize(nullptr);
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return Copy("cudaMemcpyAsync", to, from, {bytes, 1, bytes, bytes}, kind, stream);
}
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                              size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
  if (to_pitch > kMostPitch || from_pitch > kMostPitch) return Result(cudaErrorInvalidPitchValue);
  return Copy("cudaMemcpy2DAsync", to, from, {width, height, to_pitch, from_pitch}, kind, stream);
}
cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  const cudaError_t error = Fill("cudaMemset", to, value, {bytes, 1, bytes, 0}, nullptr);
  return error != cudaSuccess ? error : cudaStreamSynchronize(nullptr);
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  return Fill("cudaMemsetAsync", to, value, {bytes, 1, bytes, 0}, stream);
}
cudaError_t cudaMemset2DAsync(void* to, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t stream) {
  if (pitch > kMostPitch) return Result(cudaErrorInvalidPitchValue);
  return Fill("cudaMemset2DAsync", to, value, {width, height, pitch, 0}, stream);
}
