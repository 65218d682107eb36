// MakeNcclCommunicator where NCCL was not found when the program was built.

#include <utility>

#include "proto/support/status_macros.h"
#include "worker/comm/device/device_communicators.h"

namespace metp {

absl::StatusOr<std::unique_ptr<Communicator>> MakeNcclCommunicator(cuda::CudaBackend& backend, int rank,
                                                                   int size, Rendezvous& rendezvous,
                                                                   CommunicatorOptions options) {
  if (size == 1) {
    METP_ASSIGN_OR_RETURN(auto alone, MakeLocalDeviceCommunicators({&backend}, options));
    return std::move(alone[0]);
  }
  return absl::FailedPreconditionError(
      "this build has no NCCL: ranks on several GPUs need a program built where nccl.h and libnccl are found "
      "(Debian, Ubuntu: libnccl-dev)");
}

}  // namespace metp
