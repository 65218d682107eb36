#pragma once

// A Communicator over device memory: everything that the device's wires have in common. Post enqueues, Await makes the
// compute stream wait, the times are read back in TakeRecords. The public methods are the compute thread's, Abort is
// anybody's, Started and Enqueued are called by the transport, Watch is the watchdog's: it looks for failures that show
// by themselves and keeps the deadline of the hop in hand.
//
// States of a hop: posted -> started (`ready` is recorded) -> enqueued (`done` is recorded) -> passed. It may be awaited
// from `enqueued` on. A failure is an end for all.

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "proto/support/mutex.h"
#include "worker/comm/communicator.h"
#include "worker/comm/device/communication_stream.h"
#include "worker/comm/device/device_transport.h"
#include "worker/comm/device/hop_log.h"

namespace metp::cuda {

class DeviceCommunicator final : public Communicator, private HopListener {
 public:
  DeviceCommunicator(int rank, int size, std::shared_ptr<CommunicationStream> stream,
                     std::unique_ptr<DeviceTransport> transport, CommunicatorOptions options);
  /// Waits for the hops awaited. If there are others it aborts.
  ~DeviceCommunicator() override;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  HopId Post(Exchange exchange, const Event& after) override;
  absl::Status Await(HopId hop) override;
  /// Device memory or, staged through the device, host memory: which of them the driver knows.
  absl::Status AllReduce(const Matrix& values) override;
  absl::Status Barrier() override;
  void Abort(absl::Status reason) override;
  std::vector<HopRecord> TakeRecords() override;

 private:
  using TimePoint = std::chrono::steady_clock::time_point;

  void Started(HopId hop, Event ready) override METP_EXCLUDES(mutex_);
  void Enqueued(HopId hop, Event done) override METP_EXCLUDES(mutex_);

  absl::Status failure() METP_EXCLUDES(mutex_);
  /// The first failure stays. Not from within the transport.
  void Fail(const absl::Status& status) METP_EXCLUDES(mutex_);
  /// The failure, once nothing touches any hop's buffers any more.
  absl::Status Ended() METP_EXCLUDES(mutex_);
  absl::Status FailAndEnd(const absl::Status& status) METP_EXCLUDES(mutex_);

  absl::Status AwaitAllEnqueued() METP_EXCLUDES(mutex_);
  absl::Status AwaitOnHost(const Event& event, const char* what, TimePoint deadline) METP_EXCLUDES(mutex_);
  absl::Status Sum(const char* what, const Matrix& values) METP_EXCLUDES(mutex_);
  absl::Status SumFromHost(const char* what, const Matrix& values) METP_EXCLUDES(mutex_);
  absl::StatusOr<std::vector<HopLog::Neighbours>> ExchangeDurations(const std::vector<double>& mine);

  void Watch() METP_EXCLUDES(mutex_);
  absl::Status LookAtHopInHand() METP_REQUIRES(mutex_);
  absl::Status DeadlinePassed(const HopLog::Hop& hop) const;

  const int rank_, size_;
  const CommunicatorOptions options_;
  const std::shared_ptr<CommunicationStream> stream_;
  CudaBackend& backend_;
  std::unique_ptr<DeviceTransport> transport_;
  Tensor token_;  // one float on the device: what Barrier sums

  Mutex mutex_;
  CondVar changed_;
  HopLog log_ METP_GUARDED_BY(mutex_);
  absl::Status failure_ METP_GUARDED_BY(mutex_);
  bool aborted_ METP_GUARDED_BY(mutex_) = false;  // the transport has been told about the failure
  bool stop_ METP_GUARDED_BY(mutex_) = false;

  std::thread watchdog_;
};

}  // namespace metp::cuda
