#pragma once

// Hops over NCCL: each is one group of sends and receives on the communication stream, sums are ncclAllReduce (the same bits
// on every rank). The communicator does not block: a call that NCCL has not finished issuing is polled, so that every
// wait can be cut short. NCCL is called with the lock held, which makes Abort wait until a call has returned and no longer.
//
// In a ring of two the next rank is the previous one: transfers between the same two ranks meet in the order in which they
// stand in the group.

#include <nccl.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/support/mutex.h"
#include "worker/comm/device/device_transport.h"

namespace metp::nccl {

class NcclTransport final : public cuda::DirectTransport {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  /// Connects to the other ranks, and warms up the ways that hops and sums take, so that hops never wait for a
  /// connection. A sum that is so large that NCCL takes another algorithm for it may, the first time. `timeout`: for each
  /// step of it, and later for any call to be issued.
  static absl::StatusOr<std::unique_ptr<NcclTransport>> Connect(
      std::shared_ptr<cuda::CommunicationStream> stream, int rank, int size, const ncclUniqueId& id,
      std::chrono::milliseconds timeout);
  ~NcclTransport() override;

  bool alone() const override { return false; }
  absl::Status AllReduce(const Matrix& values) override METP_EXCLUDES(mutex_);
  absl::Status Poll() override METP_EXCLUDES(mutex_);
  void Abort(const absl::Status& reason) override METP_EXCLUDES(mutex_);

 protected:
  absl::Status Transfer(const cuda::DeviceHop& hop) override METP_EXCLUDES(mutex_);

 private:
  NcclTransport(std::shared_ptr<cuda::CommunicationStream> stream, int rank, int size,
                std::chrono::milliseconds timeout)
      : DirectTransport(std::move(stream)), rank_(rank), size_(size), timeout_(timeout) {}

  int next() const { return (rank_ + 1) % size_; }
  int previous() const { return (rank_ + size_ - 1) % size_; }
  absl::Status WarmUp() METP_EXCLUDES(mutex_);
  /// Issues what `call` issues, all of it, before it returns.
  absl::Status Issue(const std::string& what, const std::function<ncclResult_t(ncclComm_t)>& call)
      METP_EXCLUDES(mutex_);
  absl::Status AwaitIssued(const std::string& what, TimePoint deadline) METP_EXCLUDES(mutex_);
  /// ncclInProgress, ncclSuccess or what has failed; the reason once aborted.
  absl::StatusOr<ncclResult_t> State(const std::string& what) METP_REQUIRES(mutex_);
  std::string Context(const std::string& what) const;

  const int rank_, size_;
  const std::chrono::milliseconds timeout_;
  Mutex mutex_;
  ncclComm_t comm_ METP_GUARDED_BY(mutex_) = nullptr;  // null: aborted
  absl::Status aborted_ METP_GUARDED_BY(mutex_);
};

}  // namespace metp::nccl
