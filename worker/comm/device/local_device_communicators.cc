// MakeLocalDeviceCommunicators: ranks that are threads of one process on one device, over one LocalDeviceRing. Sums go
// through host memory.

#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/support/status_macros.h"
#include "worker/backend/cuda/cuda_error.h"
#include "worker/comm/device/device_communicator.h"
#include "worker/comm/device/device_communicators.h"
#include "worker/comm/device/local_device.h"

namespace metp {
namespace {

class LocalDeviceTransport final : public cuda::DeviceTransport {
 public:
  LocalDeviceTransport(std::shared_ptr<cuda::LocalDeviceRing> ring, int rank, bool alone,
                       std::shared_ptr<cuda::CommunicationStream> stream, std::unique_ptr<Communicator> host)
      : ring_(std::move(ring)),
        rank_(rank),
        alone_(alone),
        stream_(std::move(stream)),
        host_(std::move(host)) {}
  ~LocalDeviceTransport() override { ring_->Leave(rank_); }

  void Listen(cuda::HopListener* listener) override { ring_->Join(rank_, stream_, listener); }
  bool alone() const override { return alone_; }
  absl::Status Enqueue(cuda::DeviceHop hop) override { return ring_->Enqueue(rank_, std::move(hop)); }
  absl::Status Poll() override { return ring_->Poll(rank_); }

  absl::Status AllReduce(const Matrix& values) override {
    std::vector<double> room(values.bytes() / sizeof(double) + 1);
    Matrix staged = values;
    staged.data = room.data();
    METP_CUDA(
        cudaMemcpyAsync(staged.data, values.data, values.bytes(), cudaMemcpyDeviceToHost, stream_->stream()));
    METP_CUDA(cudaStreamSynchronize(stream_->stream()));
    METP_RETURN_IF_ERROR(host_->AllReduce(staged));
    METP_CUDA(
        cudaMemcpyAsync(values.data, staged.data, values.bytes(), cudaMemcpyHostToDevice, stream_->stream()));
    METP_CUDA(cudaStreamSynchronize(stream_->stream()));
    return absl::OkStatus();
  }

  void Abort(const absl::Status& reason) override {
    ring_->Cancel(rank_, reason);
    host_->Abort(reason);
  }

 private:
  const std::shared_ptr<cuda::LocalDeviceRing> ring_;
  const int rank_;
  const bool alone_;
  const std::shared_ptr<cuda::CommunicationStream> stream_;
  const std::unique_ptr<Communicator> host_;  // for sums
};

}  // namespace

absl::StatusOr<std::vector<std::unique_ptr<Communicator>>> MakeLocalDeviceCommunicators(
    const std::vector<cuda::CudaBackend*>& backends, CommunicatorOptions options) {
  const int size = static_cast<int>(backends.size());
  for (const cuda::CudaBackend* backend : backends) {
    if (backend->device() == backends[0]->device()) continue;
    return absl::InvalidArgumentError(absl::StrCat("a local ring is of one device, found devices ",
                                                   backends[0]->device(), " and ", backend->device()));
  }
  auto ring = std::make_shared<cuda::LocalDeviceRing>(size);
  std::vector<std::unique_ptr<Communicator>> host = MakeLocalCommunicators(size, options), ranks;
  for (int rank = 0; rank < size; ++rank) {
    auto stream = std::make_shared<cuda::CommunicationStream>(*backends[rank]);
    auto transport =
        std::make_unique<LocalDeviceTransport>(ring, rank, size == 1, stream, std::move(host[rank]));
    ranks.push_back(std::make_unique<cuda::DeviceCommunicator>(rank, size, std::move(stream),
                                                               std::move(transport), options));
  }
  return ranks;
}

}  // namespace metp
