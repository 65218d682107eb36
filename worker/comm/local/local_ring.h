#pragma once

// The meeting place of p ranks that are threads of one process. Each rank's communication thread moves what
// it receives itself, straight from the sender's buffer; both sides' times are on one clock and therefore
// exact. Shared by all LocalTransports of a ring; every field is guarded by the one mutex, copies are made
// outside it.

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/support/mutex.h"
#include "worker/comm/transport.h"

namespace metp {

class LocalRing {
 public:
  explicit LocalRing(int size) : size_(size), stations_(size) {}

  /// See Transport; called from the communication thread of `rank`.
  absl::StatusOr<HopTimes> Run(int rank, const Hop& hop);
  /// Ends the ring for all: with `reason` for `rank`, as Unavailable for the others.
  void Cancel(int rank, const absl::Status& reason);
  /// The rank posts nothing any more. Only those who still wait for it mind.
  void Leave(int rank);

 private:
  struct Station {
    CondVar changed;                             // this rank's thread waits here, for its neighbours
    uint64_t at = 0;                             // hop this rank has come to
    TimePoint start;                             // when it did
    uint64_t received = 0;                       // last hop whose receives are complete
    TimePoint receive_start;                     // when the rank had come to that hop
    TimePoint receive_done;                      // when they were complete
    bool sends = false;                          // it has something for the next rank
    const std::vector<Matrix>* offer = nullptr;  // what that is, as long as it may be read
    bool copying = false;                        // this rank is reading the previous one's offer
    bool left = false;
  };

  int Next(int rank) const { return (rank + 1) % size_; }
  int Previous(int rank) const { return (rank + size_ - 1) % size_; }
  void NotifyNeighbours(int rank) METP_REQUIRES(mutex_);

  absl::Status Receive(int rank, const Hop& hop, HopTimes& times) METP_EXCLUDES(mutex_);
  absl::Status AwaitTaken(int rank, const Hop& hop, HopTimes& times) METP_REQUIRES(mutex_);
  /// What ends a wait of `rank` for `peer`: OK as long as it may go on.
  absl::Status Check(int rank, int peer) const METP_REQUIRES(mutex_);
  absl::Status WaitFor(int rank, int peer, const Hop& hop) METP_REQUIRES(mutex_);

  const int size_;
  Mutex mutex_;
  std::vector<Station> stations_ METP_GUARDED_BY(mutex_);
  int ended_by_ METP_GUARDED_BY(mutex_) = -1;
  absl::Status reason_ METP_GUARDED_BY(mutex_);
};

}  // namespace metp
