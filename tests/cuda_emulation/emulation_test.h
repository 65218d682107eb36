#pragma once

// What the emulation's own tests share. Their files hold kernels, so they are compiled with the kernels' instrumentation.

#include <cuda_runtime.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/cuda_emulation/engine.h"
#include "worker/backend/cuda/device_code.h"

namespace metp::emulation {

using cuda::Shared;

struct Shape {
  dim3 grid = 1, block = 32;
  size_t shared_bytes = 0;
  cudaStream_t stream = nullptr;
};

template <typename... Parameters, typename... Arguments>
cudaError_t Start(const Shape& shape, void (*kernel)(Parameters...), Arguments... arguments) {
  cudaLaunchConfig_t config = {};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = shape.stream;
  return cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...);
}

/// Device memory that nothing wrote.
template <typename T>
class Buffer {
 public:
  explicit Buffer(size_t count) : count_(count) { cudaMalloc(&data_, count * sizeof(T)); }
  explicit Buffer(const std::vector<T>& values) : Buffer(values.size()) {
    cudaMemcpy(data_, values.data(), count_ * sizeof(T), cudaMemcpyHostToDevice);
  }
  ~Buffer() { cudaFree(data_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  T* data() const { return data_; }
  size_t bytes() const { return count_ * sizeof(T); }
  std::vector<T> Read() const {
    std::vector<T> values(count_);
    cudaMemcpy(values.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost);
    return values;
  }

 private:
  const size_t count_;
  T* data_ = nullptr;
};

class Stream {
 public:
  Stream() { cudaStreamCreateWithFlags(&handle_, cudaStreamNonBlocking); }
  ~Stream() { cudaStreamDestroy(handle_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator cudaStream_t() const { return handle_; }  // NOLINT: used wherever its handle is

 private:
  cudaStream_t handle_ = nullptr;
};

class Event {
 public:
  Event() { cudaEventCreate(&handle_); }
  ~Event() { cudaEventDestroy(handle_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  operator cudaEvent_t() const { return handle_; }  // NOLINT: used wherever its handle is

 private:
  cudaEvent_t handle_ = nullptr;
};

/// What was found once everything is done.
inline std::vector<std::string> Faults() {
  cudaDeviceSynchronize();
  return TakeFaults();
}

/// Starts from a device that is whole and ends with one on which nothing more was found.
class CudaEmulation : public testing::Test {
 protected:
  CudaEmulation() {
    Configure({});
    TakeFaults();
  }
  ~CudaEmulation() override {
    EXPECT_THAT(Faults(), testing::IsEmpty());
    Configure({});
  }
};

/// What commits a fault: a sanitizer would end the process.
class CudaEmulationFaults : public CudaEmulation {
 protected:
  void SetUp() override {
    if (!Watches()) GTEST_SKIP() << "a sanitizer watches memory in this build";
  }
};

}  // namespace metp::emulation
