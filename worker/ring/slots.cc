#include "worker/ring/slots.h"

#include <algorithm>

namespace metp {

TravellingShards::TravellingShards(Ring& ring, const Matrix& home, Home use, std::vector<int64_t> sizes)
    : rank_(ring.rank()), p_(ring.size()), sizes_(std::move(sizes)) {
  const int64_t room = *std::max_element(sizes_.begin(), sizes_.end());
  place_[kHome] = home;
  // Slot 1 is first needed in step 1, slot 0 in step 2.
  for (int slot = 0; slot < 2; ++slot) {
    if (slot == 0 && use == Home::kReuse) {
      place_[0] = home;
    } else if (p_ > (slot == 1 ? 1 : 2)) {
      slots_[slot] = ring.backend().Allocate(1, room, home.type, MemoryCategory::kRing);
      place_[slot] = slots_[slot];
    }
  }
}

void TravellingShards::Depart(Exchange& hop) {
  Send(hop, current());
  Receive(hop, place_[ArrivalSlot(step_)].Reshape(0, 1, sizes_[HeldShard(rank_, step_ + 1, p_)]));
}

}  // namespace metp
