#include "worker/rank/cuda_module.h"

#include <algorithm>
#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "worker/backend/cuda/cuda_backend.h"
#include "worker/backend/cuda/cuda_error.h"
#include "worker/comm/device/device_communicators.h"

namespace metp {
namespace {

class CudaRankDevice final : public RankDevice {
 public:
  explicit CudaRankDevice(const cuda::CudaOptions& options) : backend_(options, ledger_) {}

  Backend& backend() override { return backend_; }
  absl::StatusOr<std::unique_ptr<Communicator>> Join(int rank, int size, const std::string&,
                                                     Rendezvous& rendezvous,
                                                     CommunicatorOptions options) override {
    return MakeNcclCommunicator(backend_, rank, size, rendezvous, options);
  }
  absl::StatusOr<std::vector<std::unique_ptr<Communicator>>> JoinThreads(
      const std::vector<RankDevice*>& devices, CommunicatorOptions options) override {
    std::vector<cuda::CudaBackend*> backends;
    for (RankDevice* device : devices) backends.push_back(&static_cast<CudaRankDevice*>(device)->backend_);
    return MakeLocalDeviceCommunicators(backends, options);
  }

  double MeasureFlops() override {
    constexpr int64_t kLargest = 8192;
    constexpr double kLong = 5e-3;  // seconds, beside which starts do not count
    double best = 0, seconds = 0;
    for (int64_t n = 256; n <= kLargest && seconds < kLong; n *= 2) {
      seconds = ProductSeconds(n);
      best = std::max(best, 2.0 * n * n * n / seconds);
    }
    return best;
  }

  DeviceFacts Facts() override {
    cudaDeviceProp found = {};
    METP_CUDA(cudaGetDeviceProperties(&found, backend_.device()));
    return {found.name, static_cast<int64_t>(found.totalGlobalMem)};
  }

 private:
  /// Of the best of some products of n x n.
  double ProductSeconds(int64_t n) {
    constexpr int kTimes = 10;
    const auto make = [&] {
      Tensor x = backend_.Allocate(n, n, backend_.activation(), MemoryCategory::kTransient);
      backend_.Fill(x, 0.01f);
      return x;
    };
    const Tensor a = make(), b = make(), c = make();
    double best = 0;
    for (int i = 0; i <= kTimes; ++i) {  // the first warms up
      const Event start = backend_.Record();
      backend_.Gemm(1, a, Transpose::kNo, b, Transpose::kNo, 0, c);
      const Event end = backend_.Record();
      backend_.Synchronize();
      if (i > 0)
        best = best == 0 ? backend_.Seconds(start, end) : std::min(best, backend_.Seconds(start, end));
    }
    return best;
  }

  MemoryLedger ledger_;
  cuda::CudaBackend backend_;
};

/// What the runtime reads once, when it starts; what the user has set stays.
void SetRuntimeDefaults() {
  // Hardware queues: with the default, 8, a hop or a copy can stand behind compute of another stream in the same one.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  // Kernels are loaded now. Loading one at its first launch may wait for the device, inside the first step.
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
}

}  // namespace

const char* metp_cuda_module_version() { return METP_VERSION; }

RankDevice* metp_cuda_module_open(const RankDeviceOptions& options, absl::Status& error) {
  SetRuntimeDefaults();
  cuda::CudaOptions cuda;
  cuda.activation = options.precision == v1::DeviceProfile::PRECISION_BF16 ? DType::kBF16 : DType::kF32;
  cuda.host_threads = options.threads;
  const char* const library = std::getenv(kAttentionLibraryVariable);
  const std::string use = library != nullptr ? library : "auto";
  if (use != "auto" && use != "always" && use != "never") {
    error = absl::InvalidArgumentError(
        absl::StrCat(kAttentionLibraryVariable, " is '", use, "'; expected auto, always or never"));
    return nullptr;
  }
  if (use != "never") cuda.fused_attention = cuda::OpenCudnn;
  if (use == "always") cuda.library_use = cuda::LibraryUse::kAlways;
  try {
    return std::make_unique<CudaRankDevice>(cuda).release();
  } catch (const StepError& failure) {
    error = failure.status();
    return nullptr;
  }
}

}  // namespace metp
