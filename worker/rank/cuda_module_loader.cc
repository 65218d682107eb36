#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "worker/rank/cuda_module.h"

namespace metp {
namespace {

std::string ModulePath() {
  if (const char* path = std::getenv(kCudaModuleVariable); path != nullptr && *path != '\0') return path;
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  const std::filesystem::path installed = folder / kCudaModuleFolder / kCudaModule;
  return std::filesystem::exists(installed, error) ? installed : folder / kCudaModule;
}

}  // namespace

absl::StatusOr<std::unique_ptr<RankDevice>> OpenCudaRankDevice(const RankDeviceOptions& options) {
  const std::string path = ModulePath();
  if (!std::filesystem::exists(path)) {
    return absl::FailedPreconditionError(
        absl::StrCat("no CUDA backend here: found no ", path,
                     "; it is built where a CUDA toolkit is (cmake -DMETP_CUDA=ON says what is missing)"));
  }
  void* module =
      dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);  // never closed: devices and threads of it may live on
  if (module == nullptr) {
    const char* why = dlerror();
    return absl::FailedPreconditionError(absl::StrCat("the CUDA backend could not be loaded: ", why,
                                                      "; CUDA's libraries must be installed here"));
  }
  const auto version =
      reinterpret_cast<decltype(&metp_cuda_module_version)>(dlsym(module, kCudaModuleVersion));
  const auto open = reinterpret_cast<decltype(&metp_cuda_module_open)>(dlsym(module, kCudaModuleOpen));
  if (version == nullptr || open == nullptr || std::string(version()) != METP_VERSION) {
    return absl::FailedPreconditionError(absl::StrCat(
        path, " is of version ", version == nullptr ? "?" : version(), ", expected ", METP_VERSION));
  }
  absl::Status error;
  std::unique_ptr<RankDevice> device(open(options, error));
  if (device == nullptr) return error;
  return device;
}

}  // namespace metp
