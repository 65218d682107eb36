// MakeLoopbackCommunicator: one device takes the part of one rank of many; what it sends it receives itself, at the rate
// of the link it stands for.

#include <algorithm>
#include <memory>
#include <utility>

#include "worker/backend/cuda/cuda_error.h"
#include "worker/comm/device/device_communicator.h"
#include "worker/comm/device/device_communicators.h"
#include "worker/comm/device/hold.h"
#include "worker/comm/transport.h"

namespace metp {
namespace {

class LoopbackTransport final : public cuda::DirectTransport {
 public:
  LoopbackTransport(std::shared_ptr<cuda::CommunicationStream> stream, double bytes_per_second)
      : DirectTransport(stream), bytes_per_second_(bytes_per_second) {
    if (bytes_per_second > 0)
      begin_ = stream->backend().Allocate(1, 1, DType::kF64, MemoryCategory::kWorkspace);
  }

  bool alone() const override { return true; }
  absl::Status AllReduce(const Matrix& values) override { return absl::OkStatus(); }
  absl::Status Poll() override { return absl::OkStatus(); }
  void Abort(const absl::Status& reason) override {}  // what is enqueued waits for nobody

 protected:
  absl::Status Transfer(const cuda::DeviceHop& hop) override {
    auto* begin = static_cast<unsigned long long*>(begin_->data);
    if (bytes_per_second_ > 0) cuda::NoteTime(stream().stream(), begin);
    MoveAll(hop.exchange.sends, hop.exchange.receives);
    if (bytes_per_second_ > 0) {
      const int64_t bytes = std::max(TotalBytes(hop.exchange.sends), TotalBytes(hop.exchange.receives));
      cuda::HoldUntil(stream().stream(), begin, static_cast<double>(bytes) / bytes_per_second_);
    }
    return absl::OkStatus();
  }

 private:
  void MoveAll(const std::vector<Matrix>& sends, const std::vector<Matrix>& receives) {
    for (size_t i = 0; i < receives.size(); ++i) {
      const int64_t sent = i < sends.size() ? sends[i].bytes() : 0;
      const int64_t moved = std::min(sent, receives[i].bytes()), rest = receives[i].bytes() - moved;
      char* to = static_cast<char*>(receives[i].data);
      if (moved > 0)
        METP_CUDA(cudaMemcpyAsync(to, sends[i].data, moved, cudaMemcpyDeviceToDevice, stream().stream()));
      if (rest > 0) METP_CUDA(cudaMemsetAsync(to + moved, 0, rest, stream().stream()));
    }
  }

  const double bytes_per_second_;
  Tensor begin_;  // 8 bytes: when the hop in hand began
};

}  // namespace

std::unique_ptr<Communicator> MakeLoopbackCommunicator(cuda::CudaBackend& backend, int rank, int size,
                                                       double bytes_per_second, CommunicatorOptions options) {
  auto stream = std::make_shared<cuda::CommunicationStream>(backend);
  // begin_ is allocated in the compute stream's order.
  auto transport = std::make_unique<LoopbackTransport>(stream, bytes_per_second);
  stream->WaitForCompute();
  return std::make_unique<cuda::DeviceCommunicator>(rank, size, std::move(stream), std::move(transport),
                                                    options);
}

}  // namespace metp
