#include "worker/ring/gather.h"

#include "worker/ring/schedule.h"

namespace metp {

WeightGather::WeightGather(Ring& ring, const GroupShard& home, int64_t h)
    : rank_(ring.rank()), p_(ring.size()), h_(h), whole_{home.qkv, home.out_t} {
  if (p_ == 1) return;
  for (int i = 0; i < 2; ++i) {
    const Matrix own = whole_[i];
    memory_[i] = ring.backend().Allocate(h, own.cols, own.type, MemoryCategory::kRing);
    whole_[i] = memory_[i];
    ring.backend().Copy(own, Piece(i, rank_));
  }
}

void WeightGather::Depart(Exchange& hop) {
  for (int i = 0; i < 2; ++i) {
    Send(hop, Piece(i, GatherSends(rank_, hop_, p_)));
    Receive(hop, Piece(i, GatherReceives(rank_, hop_, p_)));
  }
}

GradientScatter::GradientScatter(Ring& ring, const GroupShard& home, int64_t h)
    : backend_(ring.backend()),
      rank_(ring.rank()),
      p_(ring.size()),
      h_(h),
      home_(home),
      partial_{home.qkv, home.out_t} {
  if (p_ == 1) return;
  for (int i = 0; i < 2; ++i) {
    const int64_t cols = partial_[i].cols;
    memory_[i] = backend_.Allocate(h, cols, DType::kF32, MemoryCategory::kRing);
    arrival_[i] = backend_.Allocate(Part(h, p_, 0).size(), cols, DType::kF32, MemoryCategory::kRing);
    partial_[i] = memory_[i];
  }
}

Matrix GradientScatter::Arrival(int matrix, int piece) const {
  return arrival_[matrix].view().Rows(0, Part(h_, p_, piece).size());
}

void GradientScatter::Depart(Exchange& hop) {
  for (int i = 0; i < 2; ++i) {
    Send(hop, Piece(i, ScatterSends(rank_, hop_, p_)));
    Receive(hop, Arrival(i, ScatterReceives(rank_, hop_, p_)));
  }
}

void GradientScatter::Arrive() {
  const int piece = ScatterReceives(rank_, hop_, p_);
  for (int i = 0; i < 2; ++i) backend_.Add(Arrival(i, piece), Piece(i, piece));
  if (++hop_ < p_ - 1) return;
  backend_.Add(Piece(0, rank_), home_.qkv);
  backend_.Add(Piece(1, rank_), home_.out_t);
}

}  // namespace metp
