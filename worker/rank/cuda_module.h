#pragma once

// metp-cuda.so: the CUDA parts of a rank, loaded when a rank asks for a GPU. The libraries behind them take 200 MB and a
// tenth of a second of every process that links them, which ranks on the CPU should not pay; and a program that links them
// does not start at all where they are missing.
//
// The module is found beside the program, in the folder of libraries that is installed with it, or where the environment
// variable METP_CUDA_MODULE says. It holds its own copies of the code it shares with the program; only RankDevice and
// what its methods give out cross the line.

#include "absl/status/status.h"
#include "worker/rank/rank_device.h"

namespace metp {

inline constexpr char kCudaModule[] = "metp-cuda.so";
/// cuDNN's attention in the place of the own kernels: auto (where it is measured to be faster), always (wherever it can be),
/// never.
inline constexpr char kAttentionLibraryVariable[] = "METP_CUDNN";
inline constexpr char kCudaModuleFolder[] = "../lib/metp";  // from the program, as installed
inline constexpr char kCudaModuleVariable[] = "METP_CUDA_MODULE";
inline constexpr char kCudaModuleVersion[] = "metp_cuda_module_version";
inline constexpr char kCudaModuleOpen[] = "metp_cuda_module_open";

extern "C" {
/// The project's version, which must be the program's.
const char* metp_cuda_module_version();
/// The caller owns the device; null with `error` set.
RankDevice* metp_cuda_module_open(const RankDeviceOptions& options, absl::Status& error);
}

}  // namespace metp
