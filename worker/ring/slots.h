#pragma once

// The shards of one pass, travelling through two slots.

#include <memory>
#include <string_view>
#include <vector>

#include "worker/ring/ring.h"
#include "worker/ring/schedule.h"

namespace metp {

/// Shard j starts at home on rank j; after step t it has moved to rank j + t + 1. p - 1 hops.
class TravellingShards : public Traveller {
 public:
  enum class Home {
    kKeep,   // the own shard is only read: weights stay where they live
    kReuse,  // from step 1 on the own shard's place is one of the two slots: K and V are not needed again
  };

  /// `home`: flat [1, size], the own shard first; with kReuse it has room for the largest shard. sizes[j]:
  /// elements of shard j.
  TravellingShards(Ring& ring, const Matrix& home, Home use, std::vector<int64_t> sizes);

  /// The shard that this rank works on now, and its elements, flat [1, sizes[shard()]].
  int shard() const { return HeldShard(rank_, step_, p_); }
  Matrix current() const { return place_[step_ == 0 ? kHome : Slot(step_)].Reshape(0, 1, sizes_[shard()]); }

  void Depart(Exchange& hop) override;
  void Arrive() override { ++step_; }
  bool done() const override { return step_ >= p_ - 1; }

 private:
  static constexpr int kHome = 2;

  const int rank_, p_;
  const std::vector<int64_t> sizes_;
  int step_ = 0;
  Tensor slots_[2];
  Matrix place_[3];  // slot 0, slot 1, home
};

}  // namespace metp
