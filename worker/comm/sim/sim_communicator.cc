#include "worker/comm/sim/sim_communicator.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace metp::sim {

HopId SimCommunicator::Post(Exchange exchange, const Event& after) {
  int64_t sent = 0, received = 0;
  for (const Matrix& x : exchange.sends) sent += x.bytes();
  for (const Matrix& x : exchange.receives) received += x.bytes();
  const double start = std::max(free_, after.seconds);
  free_ = start + MessageSeconds(link_, static_cast<double>(std::max(sent, received)));
  HopRecord& record = records_.emplace_back();
  record.hop = ++last_;
  record.sent_bytes = sent;
  record.start = start;
  record.communication = free_ - start;
  return last_;
}

absl::Status SimCommunicator::Await(HopId hop) {
  while (awaited_ < hop) {
    HopRecord& record = records_[records_.size() - (last_ - awaited_)];
    const double wait = std::max(0.0, record.start + record.communication - backend_.now());
    record.exposed = std::min(wait, record.communication);
    record.stood = backend_.now();
    backend_.Advance(wait);
    ++awaited_;
  }
  return absl::OkStatus();
}

// Reduce-scatter and gather round the ring: 2 (p - 1) messages of a p-th (Patarasuk, Yuan 2009).
absl::Status SimCommunicator::AllReduce(const Matrix& values) {
  const double part = static_cast<double>(values.bytes()) / size_;
  const double start = std::max(free_, backend_.now());
  free_ = start + 2.0 * (size_ - 1) * MessageSeconds(link_, part);
  backend_.Advance(free_ - backend_.now());
  return absl::OkStatus();
}

std::vector<HopRecord> SimCommunicator::TakeRecords() {
  if (awaited_ != last_) std::abort();  // every hop is awaited within its step
  return std::exchange(records_, {});
}

}  // namespace metp::sim
