#include "worker/backend/cuda/cuda_error.h"

#include <cxxabi.h>

#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "worker/backend/step_error.h"

namespace metp::cuda {
namespace {

struct Meaning {
  absl::StatusCode code;
  const char* advice;  // what a person can do; empty: nothing known
};

Meaning MeaningOf(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
      return {absl::StatusCode::kResourceExhausted, "the device has no memory left"};
    case cudaErrorECCUncorrectable:
      return {absl::StatusCode::kInternal,
              "the device's memory has an uncorrectable error: drain it and have it reset"};
    case cudaErrorNvlinkUncorrectable:
      return {absl::StatusCode::kInternal, "an NVLink failed: have the node looked at"};
    case cudaErrorNoDevice:
    case cudaErrorInvalidDevice:
      return {absl::StatusCode::kInternal,
              "no such device here: look at nvidia-smi and CUDA_VISIBLE_DEVICES"};
    case cudaErrorDevicesUnavailable:
      return {absl::StatusCode::kInternal, "the device is in exclusive use by another process"};
    case cudaErrorInsufficientDriver:
    case cudaErrorSystemDriverMismatch:
      return {absl::StatusCode::kFailedPrecondition,
              "the NVIDIA driver is missing or older than this binary's CUDA needs"};
    case cudaErrorNoKernelImageForDevice:
      return {absl::StatusCode::kFailedPrecondition,
              "this binary holds no kernels for the device's architecture"};
    default:
      return {absl::StatusCode::kInternal, ""};
  }
}

/// "void metp::cuda::(anonymous namespace)::Scale<float>(float*, long)" -> "Scale<float>".
std::string WithoutScopes(const std::string& name) {
  const std::string unnamed = "(anonymous namespace)";
  size_t begin = 0;
  int depth = 0;
  for (size_t i = 0; i < name.size(); ++i) {
    if (name[i] == '<') ++depth;
    if (name[i] == '>') --depth;
    if (depth > 0) continue;
    if (name[i] == ' ' || name[i] == ':') begin = i + 1;
    if (name.compare(i, unnamed.size(), unnamed) == 0) {
      i += unnamed.size() - 1;
    } else if (name[i] == '(') {
      return name.substr(begin, i - begin);
    }
  }
  return name.substr(begin);
}

std::string NameOf(const void* kernel) {
  const char* mangled = nullptr;
  if (cudaFuncGetName(&mangled, kernel) != cudaSuccess || mangled == nullptr) return "without a name";
  int status = 0;
  char* const demangled = abi::__cxa_demangle(mangled, nullptr, nullptr, &status);
  const std::string name = status == 0 ? WithoutScopes(demangled) : mangled;
  std::free(demangled);
  return name;
}

}  // namespace

void ThrowCudaError(cudaError_t error, const char* call) {
  const Meaning meaning = MeaningOf(error);
  std::string text =
      absl::StrCat("CUDA: ", cudaGetErrorName(error), " (", cudaGetErrorString(error), ") from ", call);
  if (*meaning.advice != '\0') absl::StrAppend(&text, "; ", meaning.advice);
  throw StepError(absl::Status(meaning.code, text));
}

void ThrowLaunchError(cudaError_t error, const void* kernel) {
  ThrowCudaError(error, absl::StrCat("kernel ", NameOf(kernel)).c_str());
}

}  // namespace metp::cuda
