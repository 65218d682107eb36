#pragma once

// Rings whose ranks compute on CUDA devices. Hops and sums run on a stream of the communicator's own; the host waits for
// them in AllReduce, Barrier and TakeRecords only. Each is made and used on its rank's compute thread, on which the
// backend's device is current; the backend must outlive it.

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/backend/cuda/cuda_backend.h"
#include "worker/comm/communicator.h"

namespace metp {

/// One rank of a ring over NCCL, one device per rank. Blocks until all ranks are connected or the deadline has passed.
/// FailedPrecondition: two ranks on one device, versions that differ, NCCL too old, a build without NCCL;
/// DeadlineExceeded; Unavailable.
absl::StatusOr<std::unique_ptr<Communicator>> MakeNcclCommunicator(cuda::CudaBackend& backend, int rank,
                                                                   int size, Rendezvous& rendezvous,
                                                                   CommunicatorOptions options = {});

/// Ranks as threads of one process on one device; each communicator is handed to its rank's thread. Await may hold up
/// the host until the neighbours have posted the hop. InvalidArgument: the backends are of several devices.
absl::StatusOr<std::vector<std::unique_ptr<Communicator>>> MakeLocalDeviceCommunicators(
    const std::vector<cuda::CudaBackend*>& backends, CommunicatorOptions options = {});

/// One device in the part of one rank of `size`, to measure at full scale what a rank does: it receives what it sends
/// itself. Of transfers of unequal size as much as fits is moved, the rest of a receive is zeros. All-reduces leave values
/// as they are. A hop takes at least max(sent, received) / bytes_per_second; 0: no limit.
std::unique_ptr<Communicator> MakeLoopbackCommunicator(cuda::CudaBackend& backend, int rank, int size,
                                                       double bytes_per_second,
                                                       CommunicatorOptions options = {});

}  // namespace metp
