#pragma once

// Gradient accumulators, travelling one step behind the shards they belong to.

#include <vector>

#include "worker/ring/ring.h"

namespace metp {

/// Sums every rank's contribution to every shard and brings each sum home: p hops, no all-reduce.
///
/// In step t rank r computes its contribution to shard j = (r - t) mod p while the sum so far is still on its
/// way from r - 1; then the two are added and handed on in hop t + 1. Hop p brings the complete sum home to
/// rank j. Three places suffice: one being sent, one arriving, one being computed into. The home of the own
/// shard starts as the first of them (what it holds already, say from an earlier micro-batch, joins the sum)
/// and is used again while it is away.
class TravellingAccumulators : public Traveller {
 public:
  /// `home`: flat [1, size] fp32, filled: the own shard's sum so far. sizes[j]: elements of shard j.
  TravellingAccumulators(Ring& ring, const Matrix& home, std::vector<int64_t> sizes);

  /// Where this step's contribution to shard (r - t) mod p goes, flat. In step 0 it must be added to what is
  /// there (beta() is 1), later written (beta() is 0).
  Matrix contribution() const;
  float beta() const { return step_ == 0 ? 1.0f : 0.0f; }

  void Depart(Exchange& hop) override;
  void Arrive() override;
  bool done() const override { return p_ == 1 || step_ > p_; }

 private:
  // The own shard's home takes part where it is large enough for every shard.
  Matrix Place(int step) const { return step % 2 == 0 ? even_ : odd_; }

  Backend& backend_;
  const int rank_, p_;
  const std::vector<int64_t> sizes_;
  int step_ = 0;
  Matrix home_;
  Tensor own_even_, own_odd_, own_arrival_;
  Matrix even_, odd_, arrival_;
  Matrix complete_;  // what the next hop sends
};

}  // namespace metp
