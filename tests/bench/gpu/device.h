#pragma once

// What a benchmark's figures belong to.

#include <string>
#include <vector>

#include "worker/backend/cuda/fused_attention.h"

namespace metp::gpu_bench {

/// Lines for people: device, driver, versions of CUDA's libraries, the date; first of all whether it is emulated.
std::vector<std::string> DescribeDevice();

// Which of its two files is linked, CMake picks.

/// "2.28.9", or "none".
std::string NcclVersion();  // nccl_version.cc, no_nccl_version.cc

struct Emulation {
  bool emulated = false;
  std::vector<std::string> faults;  // found so far, of kernels on the emulated device
};
Emulation TakeEmulation();  // emulated_device.cc, real_device.cc
/// A library of fused attention: cuDNN, or what stands for it.
absl::StatusOr<std::unique_ptr<cuda::FusedAttention>> OpenLibrary(cudaStream_t stream);  // the same

}  // namespace metp::gpu_bench
