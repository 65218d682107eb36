#pragma once

// The emulated CUDA: the words that a host compiler does not know, the runtime's calls, and the start of a kernel.
// Stands in for the toolkit's header of this name; macros, because the language they stand for has no other way.

#include <memory>
#include <tuple>
#include <utility>

#include "cuda_runtime_api.h"
#include "device_functions.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
// One block runs on one host thread at a time, so what its threads share is the host thread's. (Not thread_local, which
// calls an initialiser at each use of an extern variable.)
#define __shared__ __thread

#define threadIdx (::metp::emulation::ThreadIndex())
#define blockIdx (::metp::emulation::BlockIndex())
// Variables, since cudaLaunchConfig_t has members of these names: the launch's in hand.
extern __thread uint3 blockDim;
extern __thread uint3 gridDim;
inline constexpr int warpSize = 32;

namespace metp::emulation {

/// A kernel with its arguments: called once for each thread.
class KernelCall {
 public:
  virtual ~KernelCall() = default;
  virtual void operator()() const = 0;
  /// Of the whole object: kernels may read these bytes of host memory, their parameters.
  virtual size_t bytes() const = 0;
};

template <typename... Parameters>
class BoundKernel final : public KernelCall {
 public:
  BoundKernel(void (*kernel)(Parameters...), Parameters... arguments)
      : kernel_(kernel), arguments_(std::move(arguments)...) {}
  void operator()() const override { std::apply(kernel_, arguments_); }
  size_t bytes() const override { return sizeof(*this); }

 private:
  void (*const kernel_)(Parameters...);
  const std::tuple<Parameters...> arguments_;
};

/// Checks the launch as a device would, and enqueues it.
cudaError_t LaunchKernel(const cudaLaunchConfig_t& config, const void* kernel,
                         std::unique_ptr<KernelCall> call);

}  // namespace metp::emulation

template <typename... Parameters, typename... Arguments>
inline cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                                      Arguments&&... arguments) {
  return metp::emulation::LaunchKernel(
      *config, reinterpret_cast<const void*>(kernel),
      std::make_unique<metp::emulation::BoundKernel<Parameters...>>(
          kernel, static_cast<Parameters>(std::forward<Arguments>(arguments))...));
}

template <typename... Parameters>
inline cudaError_t cudaFuncSetAttribute(void (*kernel)(Parameters...), cudaFuncAttribute attribute,
                                        int value) {
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), attribute, value);
}

// The toolkit's overloads for typed pointers.
template <typename T>
inline cudaError_t cudaMalloc(T** data, size_t bytes) {
  return cudaMalloc(reinterpret_cast<void**>(data), bytes);
}
template <typename T>
inline cudaError_t cudaMallocAsync(T** data, size_t bytes, cudaStream_t stream) {
  return cudaMallocAsync(reinterpret_cast<void**>(data), bytes, stream);
}
template <typename T>
inline cudaError_t cudaMallocFromPoolAsync(T** data, size_t bytes, cudaMemPool_t pool, cudaStream_t stream) {
  return cudaMallocFromPoolAsync(reinterpret_cast<void**>(data), bytes, pool, stream);
}
template <typename T>
inline cudaError_t cudaMallocHost(T** data, size_t bytes) {
  return cudaMallocHost(reinterpret_cast<void**>(data), bytes);
}
template <typename T>
inline cudaError_t cudaHostAlloc(T** data, size_t bytes, unsigned int flags) {
  return cudaHostAlloc(reinterpret_cast<void**>(data), bytes, flags);
}
