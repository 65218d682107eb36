// MakeGlooCommunicator: one rank of a ring over TCP.

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/status_macros.h"
#include "worker/comm/communicator.h"
#include "worker/comm/gloo/gloo_transport.h"
#include "worker/comm/gloo/sigpipe.h"
#include "worker/comm/host_communicator.h"

namespace metp {

absl::StatusOr<std::unique_ptr<Communicator>> MakeGlooCommunicator(int rank, int size,
                                                                   const std::string& address,
                                                                   Rendezvous& rendezvous,
                                                                   CommunicatorOptions options) {
  if (size < 1 || rank < 0 || rank >= size) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", rank, " of a ring of ", size));
  }
  if (size == 1) return std::move(MakeLocalCommunicators(1, options)[0]);
  const SigpipeBlock no_sigpipe;  // Gloo's loop, the watchers and the communication thread start below
  METP_ASSIGN_OR_RETURN(auto neighbours,
                        GlooNeighbours::Connect(rank, size, address, rendezvous, options.deadline));
  return std::make_unique<HostCommunicator>(rank, size,
                                            std::make_unique<GlooTransport>(std::move(neighbours)), options);
}

}  // namespace metp
