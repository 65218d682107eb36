#pragma once

// The meeting place of p ranks that are threads of one process and share a device. Whoever of a sender and its receiver
// comes second enqueues the copies, on the receiver's communication stream, behind the points at which both were ready;
// the sender's stream waits for the end of them behind its own receives. One mutex guards everything; streams of other
// ranks are used under it.
//
// Only the first hop of each rank's queue takes part: the one behind it starts once all of the first is enqueued. So the
// order on every stream is that of the hops, whichever threads enqueue them, and a wait enqueued is for something that is
// enqueued already.

#include <cuda_runtime.h>

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "proto/support/mutex.h"
#include "worker/comm/device/device_transport.h"

namespace metp::cuda {

class LocalDeviceRing {
 public:
  explicit LocalDeviceRing(int size) : size_(size), stations_(size) {}

  void Join(int rank, std::shared_ptr<CommunicationStream> stream, HopListener* listener)
      METP_EXCLUDES(mutex_);
  /// See DeviceTransport.
  absl::Status Enqueue(int rank, DeviceHop hop) METP_EXCLUDES(mutex_);
  absl::Status Poll(int rank) METP_EXCLUDES(mutex_);
  /// Ends the ring for all: with `reason` for `rank`, as Unavailable for the others. Afterwards the rank's stream is behind
  /// all that touches its buffers.
  void Cancel(int rank, const absl::Status& reason) METP_EXCLUDES(mutex_);
  /// The rank posts nothing any more, and its listener is told nothing. Only those who still wait for it mind.
  void Leave(int rank) METP_EXCLUDES(mutex_);

 private:
  struct Queued {
    DeviceHop hop;
    std::optional<Event> ready;  // once it is the first
    bool received = false;
    std::optional<Event> taken;  // the next rank has what was sent
  };
  struct Station {
    std::shared_ptr<CommunicationStream> stream;
    HopListener* listener = nullptr;
    std::deque<Queued> queue;
    HopId enqueued = 0;  // last hop of which everything is enqueued
    bool left = false;
  };

  int Next(int rank) const { return (rank + 1) % size_; }
  int Previous(int rank) const { return (rank + size_ - 1) % size_; }
  /// What ends the rank: OK as long as it may go on.
  absl::Status Check(int rank) const METP_REQUIRES(mutex_);
  void AdvanceAll() METP_REQUIRES(mutex_);
  /// One stage of the rank's first hop; false when it has to wait.
  bool Advance(int rank) METP_REQUIRES(mutex_);
  bool TryReceive(int rank, Queued& mine) METP_REQUIRES(mutex_);
  absl::Status Compare(int from, int to, HopId hop, const std::vector<Matrix>* sends,
                       const std::vector<Matrix>& receives) const;
  void EndWith(int rank, const absl::Status& reason) METP_REQUIRES(mutex_);

  const int size_;
  EventPool events_;  // points that outlive the ranks that recorded them
  Mutex mutex_;
  std::vector<Station> stations_ METP_GUARDED_BY(mutex_);
  int ended_by_ METP_GUARDED_BY(mutex_) = -1;
  absl::Status reason_ METP_GUARDED_BY(mutex_);
};

}  // namespace metp::cuda
