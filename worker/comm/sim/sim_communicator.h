#pragma once

// One rank of a simulated ring: its neighbours behave exactly as it does, a hop takes what the link's profile
// says, and the communication stream has a clock of its own.

#include <vector>

#include "worker/backend/sim/sim_backend.h"
#include "worker/comm/communicator.h"

namespace metp::sim {

class SimCommunicator final : public Communicator {
 public:
  /// The backend must outlive the communicator. Hops go at the rate of `link`, the ring's slowest.
  SimCommunicator(SimBackend& backend, const v1::Link& link, int rank, int size)
      : backend_(backend), link_(link), rank_(rank), size_(size) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  HopId Post(Exchange exchange, const Event& after) override;
  absl::Status Await(HopId hop) override;
  absl::Status AllReduce(const Matrix& values) override;
  absl::Status Barrier() override { return absl::OkStatus(); }
  void Abort(absl::Status) override {}
  std::vector<HopRecord> TakeRecords() override;

 private:
  SimBackend& backend_;
  const v1::Link link_;
  const int rank_, size_;
  double free_ = 0;                 // when the communication stream has done what was posted
  std::vector<HopRecord> records_;  // of all hops since the last TakeRecords, in order
  HopId last_ = 0, awaited_ = 0;
};

}  // namespace metp::sim
