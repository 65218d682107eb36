#include "tests/bench/gpu/device.h"

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <ctime>
#include <fstream>

#include "absl/strings/str_format.h"
#include "worker/backend/cuda/cuda_error.h"

namespace metp::gpu_bench {
namespace {

/// 13020: "13.2".
std::string Cuda(int version) { return absl::StrFormat("%d.%d", version / 1000, version % 1000 / 10); }

/// The kernel module's own version, where this system says it.
std::string DriverModule() {
  std::string line;
  std::getline(std::ifstream("/proc/driver/nvidia/version"), line);
  return line.empty() ? "" : " (" + line + ")";
}

}  // namespace

std::vector<std::string> DescribeDevice() {
  cudaDeviceProp found = {};
  METP_CUDA(cudaGetDeviceProperties(&found, 0));
  int driver = 0, runtime = 0;
  METP_CUDA(cudaDriverGetVersion(&driver));
  METP_CUDA(cudaRuntimeGetVersion(&runtime));
  const auto version = static_cast<int>(cublasLtGetVersion());  // 130001: 13.0.1
  const std::time_t now = std::time(nullptr);
  char date[32] = "";
  std::strftime(date, sizeof date, "%Y-%m-%d", std::gmtime(&now));
  std::vector<std::string> lines = {
      absl::StrFormat("device: %s, compute capability %d.%d, %d multiprocessors, %d MiB, L2 %d MiB",
                      found.name, found.major, found.minor, found.multiProcessorCount,
                      found.totalGlobalMem >> 20, found.l2CacheSize >> 20),
      "driver: CUDA " + Cuda(driver) + DriverModule(),
      "runtime: CUDA " + Cuda(runtime),
      absl::StrFormat("cuBLASLt: %d.%d.%d", version / 10000, version % 10000 / 100, version % 100),
      "NCCL: " + NcclVersion(),
      absl::StrFormat("date: %s", date)};
  if (TakeEmulation().emulated) lines.insert(lines.begin(), "emulated: times mean nothing");
  return lines;
}

}  // namespace metp::gpu_bench
