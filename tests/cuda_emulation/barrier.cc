// The block's barrier: complete when all threads that have not ended wait at it.

#include "tests/cuda_emulation/block.h"

namespace metp::emulation {
namespace {

constexpr uint32_t kTicksOfAnActor = 1u << 20;

const char* NameOf(BlockVote vote) {
  switch (vote) {
    case BlockVote::kOr:
      return "__syncthreads_or";
    case BlockVote::kAnd:
      return "__syncthreads_and";
    case BlockVote::kCount:
      return "__syncthreads_count";
    case BlockVote::kNone:
      break;
  }
  return "__syncthreads";
}

}  // namespace

int Block::SyncBlock(BlockVote vote, int predicate) {
  if (waiting_ == 0) {
    vote_ = vote;
    votes_ = 0;
  } else if (vote != vote_) {
    GiveUp([&] { return WhoWaits() + "; another came to " + NameOf(vote); });
  }
  Warp& warp = warps_[lane_->warp];
  warp.at_barrier |= 1u << lane_->bit;
  ++waiting_;
  if (predicate != 0) ++votes_;
  if (BarrierIsFull()) {
    CompleteBarrier();
    // This one need not wait.
    warp.ready &= ~(1u << lane_->bit);
    if ((warp.ready | (warp.present & ~warp.begun)) == 0) runnable_ &= ~(1u << lane_->warp);
    UpdateHere();
  } else {
    Suspend(NameOf(vote), 0);
  }
  return outcome_;
}

void Block::CompleteBarrier() {
  outcome_ = votes_;
  if (vote_ == BlockVote::kOr) outcome_ = votes_ > 0;
  if (vote_ == BlockVote::kAnd) outcome_ = votes_ == static_cast<int>(waiting_);
  waiting_ = 0;
  for (uint32_t w = 0; w < warps_used_; ++w) {
    Warp& warp = warps_[w];
    if (warp.at_barrier != 0) runnable_ |= 1u << w;
    warp.ready |= warp.at_barrier;
    warp.at_barrier = 0;
    warp.floor = tick_;
    warp.parts = false;
  }
  here.block_floor = tick_;
  if (tick_ < kTicksOfAnActor) {
    ++tick_;
  } else {
    shared_.ForgetAccesses();
    NewTicks();
  }
}

}  // namespace metp::emulation
