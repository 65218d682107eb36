#pragma once

// Errors of CUDA calls. Every call's result goes through METP_CUDA, which throws StepError with what was called, what the
// driver said and, where there is one, what a person can do. Errors of work that was launched earlier come out of whatever
// call follows it. No CUDA error is fatal to the process: the rank ends, its supervisor says why.

#include <cuda_runtime.h>

namespace metp::cuda {

/// Throws StepError:
///   ResourceExhausted   out of device memory
///   FailedPrecondition  a driver that is missing or too old, no kernels for the device: no other try helps
///   Internal            anything else: a device that is gone or that somebody else has, memory (ECC) and NVLink errors, an
///                       illegal access
/// Never Unavailable, which is what a rank says of its neighbours.
[[noreturn]] void ThrowCudaError(cudaError_t error, const char* call);

inline void Check(cudaError_t error, const char* call) {
  if (error != cudaSuccess) ThrowCudaError(error, call);
}

/// The same for the start of a kernel, which the error names.
[[noreturn]] void ThrowLaunchError(cudaError_t error, const void* kernel);

inline void CheckLaunch(cudaError_t error, const void* kernel) {
  if (error != cudaSuccess) ThrowLaunchError(error, kernel);
}

#define METP_CUDA(call) ::metp::cuda::Check((call), #call)

}  // namespace metp::cuda
