#pragma once

// Before the ranks of a ring connect through NCCL they tell each other who they are, over the rendezvous, so that what
// cannot work is said in words: two ranks on one device, versions that differ. All ranks check the same facts and come to
// the same result. Keys: "nccl/rank/R" = RankFacts of rank R, "nccl/id" = NCCL's unique id in hex, or "error: ...".

#include <nccl.h>

#include <chrono>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/comm/communicator.h"

namespace metp::nccl {

inline constexpr int kOldestVersion =
    21900;  // communicators that do not block and can be aborted, all their defects mended

struct RankFacts {
  std::string version;   // of this program
  int nccl_version = 0;  // found at run time
  std::string host;
  int device = 0;    // as the runtime numbers them
  std::string bus;   // PCI address
  std::string uuid;  // of the device, hex
};

/// Of the calling process and the device numbered `device`. Throws StepError.
RankFacts FactsOf(int device);

std::string ToText(const RankFacts& facts);
absl::StatusOr<RankFacts> FromText(const std::string& text);

/// FailedPrecondition naming the ranks, what was found and what is needed.
absl::Status CheckRanks(const std::vector<RankFacts>& ranks);

/// Tells the others about this rank, waits for all of them, checks, and gets the unique id of the ring.
absl::StatusOr<ncclUniqueId> MeetRanks(int rank, int size, const RankFacts& mine, Rendezvous& rendezvous,
                                       std::chrono::steady_clock::time_point deadline);

}  // namespace metp::nccl
