#include "worker/rank/rank_device.h"

#include <unistd.h>

#include <new>

namespace metp {
namespace {

class CpuRankDevice final : public RankDevice {
 public:
  explicit CpuRankDevice(int threads) : threads_(threads), backend_(MakeCpuBackend(threads, ledger_)) {}

  Backend& backend() override { return *backend_; }
  absl::StatusOr<std::unique_ptr<Communicator>> Join(int rank, int size, const std::string& address,
                                                     Rendezvous& rendezvous,
                                                     CommunicatorOptions options) override {
    return MakeGlooCommunicator(rank, size, address, rendezvous, options);
  }
  absl::StatusOr<std::vector<std::unique_ptr<Communicator>>> JoinThreads(
      const std::vector<RankDevice*>& devices, CommunicatorOptions options) override {
    return MakeLocalCommunicators(static_cast<int>(devices.size()), options);
  }
  double MeasureFlops() override { return MeasureSgemmFlops(threads_); }
  DeviceFacts Facts() override { return {"cpu", MachineMemoryBytes()}; }

 private:
  const int threads_;
  MemoryLedger ledger_;
  const std::unique_ptr<Backend> backend_;
};

}  // namespace

int64_t MachineMemoryBytes() { return int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGE_SIZE); }

absl::StatusOr<std::unique_ptr<RankDevice>> OpenRankDevice(const RankDeviceOptions& options) {
  try {
    if (options.device == v1::JobSpec::DEVICE_GPU) return OpenCudaRankDevice(options);
    if (options.precision == v1::DeviceProfile::PRECISION_BF16) {
      return absl::InvalidArgumentError("the plan computes in bf16; the CPU backend computes in fp32 only");
    }
    return std::make_unique<CpuRankDevice>(options.threads);
  } catch (const StepError& error) {  // the backend's own workspace
    return error.status();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("the host has no memory left for what this rank sets up");
  }
}

}  // namespace metp
