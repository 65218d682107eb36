#pragma once

// A CUDA stream that ends with its owner; ordered with no other stream.

#include <cuda_runtime.h>

#include "worker/backend/cuda/cuda_error.h"

namespace metp::cuda {

class Stream {
 public:
  Stream() { METP_CUDA(cudaStreamCreateWithFlags(&handle_, cudaStreamNonBlocking)); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() {
    cudaStreamSynchronize(handle_);
    cudaStreamDestroy(handle_);
  }
  operator cudaStream_t() const { return handle_; }  // NOLINT: used wherever its handle is

 private:
  cudaStream_t handle_ = nullptr;
};

}  // namespace metp::cuda
