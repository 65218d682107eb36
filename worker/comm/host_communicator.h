#pragma once

// A Communicator over host memory: everything that local and gloo have in common. It owns a communication
// thread, which takes hops from a queue in the order posted and runs each on a Transport, and it keeps the
// account of what each hop cost. The public methods are the compute thread's, Abort is anybody's, RunHops is
// the communication thread.
//
// States of a hop: queued -> running -> done -> awaited (its record waits for TakeRecords). A failure is an
// end for all.

#include <cstdint>
#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "proto/support/mutex.h"
#include "worker/comm/communicator.h"
#include "worker/comm/transport.h"

namespace metp {

class HostCommunicator final : public Communicator {
 public:
  HostCommunicator(int rank, int size, std::unique_ptr<Transport> transport, CommunicatorOptions options);
  /// Hops still queued are dropped and a running one is cut short.
  ~HostCommunicator() override;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  HopId Post(Exchange exchange, const Event& after) override;
  absl::Status Await(HopId hop) override;
  absl::Status AllReduce(const Matrix& values) override;
  absl::Status Barrier() override;
  void Abort(absl::Status reason) override;
  std::vector<HopRecord> TakeRecords() override;

 private:
  struct Done {
    HopId id = 0;
    int64_t sent_bytes = 0;
    HopTimes times;
  };

  void Enqueue(Hop hop) METP_REQUIRES(mutex_);
  absl::Status AwaitSequence(uint64_t sequence) METP_REQUIRES(mutex_);
  /// Waits for every hop posted so far; the deadline of the collective that follows.
  absl::StatusOr<TimePoint> StartCollective() METP_EXCLUDES(mutex_);
  absl::Status RunCollectiveHop(const char* collective, Exchange exchange, TimePoint deadline)
      METP_EXCLUDES(mutex_);
  /// The first failure stays.
  void Fail(const absl::Status& status) METP_REQUIRES(mutex_);
  void RunHops() METP_EXCLUDES(mutex_);

  const int rank_, size_;
  const CommunicatorOptions options_;
  const std::unique_ptr<Transport> transport_;

  Mutex mutex_;
  CondVar posted_;    // the communication thread waits here
  CondVar finished_;  // the compute thread waits here
  std::deque<Hop> queue_ METP_GUARDED_BY(mutex_);
  std::deque<Done> done_ METP_GUARDED_BY(mutex_);  // done and not awaited, in order
  uint64_t last_sequence_ METP_GUARDED_BY(mutex_) = 0;
  uint64_t done_sequence_ METP_GUARDED_BY(mutex_) = 0;
  HopId last_id_ METP_GUARDED_BY(mutex_) = 0;
  HopId done_id_ METP_GUARDED_BY(mutex_) = 0;
  std::vector<HopRecord> records_ METP_GUARDED_BY(mutex_);
  absl::Status failure_ METP_GUARDED_BY(mutex_);
  bool running_ METP_GUARDED_BY(mutex_) = false;  // the transport is at work on a hop's buffers
  bool stop_ METP_GUARDED_BY(mutex_) = false;

  std::thread thread_;
};

}  // namespace metp
