#include "worker/ring/accumulators.h"

#include <algorithm>

#include "worker/ring/schedule.h"

namespace metp {

TravellingAccumulators::TravellingAccumulators(Ring& ring, const Matrix& home, std::vector<int64_t> sizes)
    : backend_(ring.backend()), rank_(ring.rank()), p_(ring.size()), sizes_(std::move(sizes)), home_(home) {
  const int64_t room = *std::max_element(sizes_.begin(), sizes_.end());
  auto allocate = [&] { return backend_.Allocate(1, room, DType::kF32, MemoryCategory::kRing); };
  even_ = home;
  if (p_ > 1) {
    odd_ = own_odd_ = allocate();
    arrival_ = own_arrival_ = allocate();
  }
  if (p_ > 2 && room > home.size()) even_ = own_even_ = allocate();
}

Matrix TravellingAccumulators::contribution() const {
  const Matrix place = step_ == 0 ? home_ : Place(step_);
  return place.Reshape(0, 1, sizes_[HeldShard(rank_, step_, p_)]);
}

void TravellingAccumulators::Depart(Exchange& hop) {
  if (step_ == 0) return;
  Send(hop, complete_);
  const int64_t size = sizes_[HeldShard(rank_, step_, p_)];
  Receive(hop, (step_ < p_ ? arrival_ : home_).Reshape(0, 1, size));
}

void TravellingAccumulators::Arrive() {
  if (step_ < p_) {
    const Matrix own = contribution();
    complete_ = own;
    if (step_ > 0) {
      const Matrix sum = arrival_.Reshape(0, 1, own.size());
      // The last sum leaves while the own shard's comes home, so it must not be in the home itself.
      const bool in_home = step_ == p_ - 1 && own.data == home_.data;
      backend_.Add(in_home ? own : sum, in_home ? sum : own);
      if (in_home) complete_ = sum;
    }
  }
  ++step_;
}

}  // namespace metp
