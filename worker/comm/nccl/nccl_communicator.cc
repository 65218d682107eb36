// MakeNcclCommunicator: one rank of a ring over NCCL.

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/status_macros.h"
#include "worker/comm/device/device_communicator.h"
#include "worker/comm/device/device_communicators.h"
#include "worker/comm/nccl/nccl_peers.h"
#include "worker/comm/nccl/nccl_transport.h"

namespace metp {

absl::StatusOr<std::unique_ptr<Communicator>> MakeNcclCommunicator(cuda::CudaBackend& backend, int rank,
                                                                   int size, Rendezvous& rendezvous,
                                                                   CommunicatorOptions options) {
  if (size < 1 || rank < 0 || rank >= size) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", rank, " of a ring of ", size));
  }
  if (size == 1) {
    METP_ASSIGN_OR_RETURN(auto alone, MakeLocalDeviceCommunicators({&backend}, options));
    return std::move(alone[0]);
  }
  std::unique_ptr<Communicator> communicator;
  METP_RETURN_IF_ERROR(cuda::Caught([&]() -> absl::Status {
    const auto deadline = std::chrono::steady_clock::now() + options.deadline;
    METP_ASSIGN_OR_RETURN(const ncclUniqueId id,
                          nccl::MeetRanks(rank, size, nccl::FactsOf(backend.device()), rendezvous, deadline));
    auto stream = std::make_shared<cuda::CommunicationStream>(backend);
    METP_ASSIGN_OR_RETURN(auto transport,
                          nccl::NcclTransport::Connect(stream, rank, size, id, options.deadline));
    communicator = std::make_unique<cuda::DeviceCommunicator>(rank, size, std::move(stream),
                                                              std::move(transport), options);
    return absl::OkStatus();
  }));
  return communicator;
}

}  // namespace metp
