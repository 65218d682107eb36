// MakeLocalCommunicators: ranks that are threads of one process, over one LocalRing.

#include <memory>
#include <utility>
#include <vector>

#include "worker/comm/communicator.h"
#include "worker/comm/host_communicator.h"
#include "worker/comm/local/local_ring.h"

namespace metp {
namespace {

class LocalTransport final : public Transport {
 public:
  LocalTransport(std::shared_ptr<LocalRing> ring, int rank) : ring_(std::move(ring)), rank_(rank) {}
  ~LocalTransport() override { ring_->Leave(rank_); }

  absl::StatusOr<HopTimes> Run(const Hop& hop) override { return ring_->Run(rank_, hop); }
  void Cancel(const absl::Status& reason) override { ring_->Cancel(rank_, reason); }

 private:
  const std::shared_ptr<LocalRing> ring_;
  const int rank_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> MakeLocalCommunicators(int size, CommunicatorOptions options) {
  auto ring = std::make_shared<LocalRing>(size);
  std::vector<std::unique_ptr<Communicator>> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.push_back(std::make_unique<HostCommunicator>(
        rank, size, std::make_unique<LocalTransport>(ring, rank), options));
  }
  return ranks;
}

}  // namespace metp
