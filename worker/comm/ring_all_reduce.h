#pragma once

// All-reduce over a ring of host memory, written once on top of single hops.
//
// The values are cut into p segments of nearly equal length. Reduce-scatter: for p - 1 hops each rank passes
// on the segment it has just added to, so that segment i ends up complete on one rank, summed in ring order.
// All-gather: for p - 1 more hops the complete segments go round as they are. Every segment's sum is formed
// once, on one rank, in an order that depends on p only: all ranks end with the same bits, run after run.
// fp32 is summed in fp32, fp64 in fp64.

#include <functional>

#include "absl/status/status.h"
#include "worker/comm/communicator.h"

namespace metp {

/// Sums `values` (fp32 or fp64, contiguous, host memory) in place. `hop` runs one exchange to its end; empty
/// transfers (segments of no elements, when there are fewer values than ranks) are left out of it.
absl::Status RingAllReduce(int rank, int size, const Matrix& values,
                           const std::function<absl::Status(Exchange)>& hop);

}  // namespace metp
