// Warp intrinsics: lanes that name each other in a mask meet, and the last to arrive computes what each gets.

#include <algorithm>
#include <cstring>

#include "tests/cuda_emulation/block.h"
#include "tests/cuda_emulation/engine.h"
#include "tests/cuda_emulation/fault_text.h"
#include "tests/cuda_emulation/faults.h"
#include "tests/cuda_emulation/operations.h"

namespace metp::emulation {
namespace {

constexpr const char* kSync = "__syncwarp";
constexpr const char* kExchange = "an exchange of the warp";
constexpr int kNoSource = -1;  // not a shuffle: the result is the ballot

const char* NameOf(Vote vote) {
  return vote == Vote::kBallot ? "__ballot_sync" : vote == Vote::kAny ? "__any_sync" : "__all_sync";
}

bool SameName(const char* a, const char* b) { return a == b || std::strcmp(a, b) == 0; }

std::string Hex(uint32_t mask) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text = "0x";
  for (int shift = 28; shift >= 0; shift -= 4) text += kDigits[mask >> shift & 15];
  return text;
}

}  // namespace

void Block::SyncWarp(unsigned mask) {
  lane_->source = kNoSource;
  Meet(mask, kSync, true);
}

uint64_t Block::Shuffle(unsigned mask, uint64_t bits, int source, const char* name) {
  lane_->given = bits;
  lane_->source = source;
  Meet(mask, name, false);
  return lane_->taken;
}

unsigned Block::WarpVote(unsigned mask, bool predicate, Vote vote) {
  lane_->given = predicate;
  lane_->source = kNoSource;
  Meet(mask, NameOf(vote), false);
  const auto ballot = static_cast<uint32_t>(lane_->taken);
  if (vote == Vote::kBallot) return ballot;
  return vote == Vote::kAny ? ballot != 0 : ballot == mask;
}

// Two rooms: a lane that goes on may give to the next exchange before another has looked at this one. It cannot go on
// further, as that one is complete only when all have come to it.
const unsigned char* Block::Exchange(const void* mine, size_t bytes) {
  Warp& warp = warps_[lane_->warp];
  unsigned char* const room = warp.room[warp.exchange];
  std::memcpy(room + bytes * lane_->bit, mine, bytes);
  lane_->source = kNoSource;
  Meet(~0u, kExchange, false);
  return room;
}

/// Returns when all lanes of the mask have come.
void Block::Meet(unsigned mask, const char* name, bool ended_may_lack) {
  Warp& warp = warps_[lane_->warp];
  const uint32_t bit = 1u << lane_->bit, lacking = warp.ended | ~warp.present;
  if ((mask & bit) == 0) {
    GiveUp([&] {
      return DescribeActor(here.stamp) + ", " + name + " with a mask without itself: " + Hex(mask);
    });
  }
  if (!ended_may_lack && (mask & lacking) != 0) {
    GiveUp([&] {
      return DescribeActor(here.stamp) + ", " + name + " names lanes that have ended: " + Hex(mask & lacking);
    });
  }
  int which = 0;
  while (which < warp.meetings &&
         (warp.meeting[which].mask != mask || !SameName(warp.meeting[which].name, name))) {
    ++which;
  }
  if (which == warp.meetings) warp.meeting[warp.meetings++] = {mask, 0, name};
  warp.meeting[which].arrived |= bit;
  if (!Complete(warp, which, ended_may_lack)) return Suspend(name, mask);
  // This one need not wait.
  warp.ready &= ~bit;
  if ((warp.ready | (warp.present & ~warp.begun)) == 0) runnable_ &= ~(1u << lane_->warp);
  UpdateHere();
}

bool Block::Complete(Warp& warp, int which, bool ended_may_lack) {
  const Meeting meeting = warp.meeting[which];
  const uint32_t lacking = ended_may_lack ? warp.ended | ~warp.present : 0;
  if ((meeting.arrived | lacking) != (meeting.mask | lacking)) return false;
  warp.meeting[which] = warp.meeting[--warp.meetings];
  GiveResults(warp, meeting);
  Order(warp, meeting.arrived);
  warp.ready |= meeting.arrived;
  runnable_ |= 1u << (&warp - warps_.get());
  return true;
}

/// A lane that ended may be the last that the others' __syncwarp waited for.
void Block::CompleteAfterEnd(Warp& warp) {
  for (int i = warp.meetings - 1; i >= 0; --i) {
    if (SameName(warp.meeting[i].name, kSync)) Complete(warp, i, true);
  }
}

void Block::GiveResults(Warp& warp, const Meeting& meeting) {
  if (meeting.name == kSync) return;
  if (meeting.name == kExchange) {
    warp.exchange ^= 1;
    return;
  }
  DeviceThread* const lanes = &lanes_[static_cast<size_t>(&warp - warps_.get()) * kLanes];
  uint32_t ballot = 0;
  for (uint32_t rest = meeting.mask; rest != 0; rest &= rest - 1) {
    const int l = __builtin_ctz(rest);
    if (lanes[l].given != 0) ballot |= 1u << l;
  }
  for (uint32_t rest = meeting.mask; rest != 0; rest &= rest - 1) {
    DeviceThread& lane = lanes[__builtin_ctz(rest)];
    if (lane.source == kNoSource) {
      lane.taken = ballot;
    } else if ((meeting.mask >> (lane.source & 31) & 1) != 0) {
      lane.taken = lanes[lane.source & 31].given;
    } else {
      lane.taken = ~uint64_t{0};
      here.in_kernel = false;
      const Operation& operation = OperationAt(here.operation);
      AddFault("uninitialised", metp::emulation::NameOf(operation),
               metp::emulation::NameOf(operation) + ", block " + Coordinates(number_, gridDim) + " thread " +
                   Coordinates(lane.number, blockDim) + ", " + meeting.name + " takes from lane " +
                   std::to_string(lane.source) + ", which the mask " + Hex(meeting.mask) + " does not name");
      here.in_kernel = true;
    }
  }
}

/// What these lanes did has happened before what they do next.
void Block::Order(Warp& warp, uint32_t mask) {
  if ((mask | warp.ended) == warp.present) {
    warp.floor = tick_;
    warp.parts = false;
  } else {
    if (!std::exchange(warp.parts, true)) std::memset(warp.known, 0, sizeof(warp.known));
    uint32_t joined[kLanes] = {};
    for (int u = 0; u < kLanes; ++u) {
      if ((mask >> u & 1) == 0) continue;
      for (int t = 0; t < kLanes; ++t) joined[t] = std::max(joined[t], warp.known[u][t]);
    }
    for (int t = 0; t < kLanes; ++t) {
      if ((mask >> t & 1) != 0) joined[t] = tick_;
    }
    for (int u = 0; u < kLanes; ++u) {
      if ((mask >> u & 1) != 0) std::memcpy(warp.known[u], joined, sizeof(joined));
    }
  }
  if (tick_ < kMaxTick) ++tick_;
}

const unsigned char* WarpExchange(const void* mine, size_t bytes) {
  return Block::Running().Exchange(mine, bytes);
}

uint3 ThreadIndex() { return Block::Running().lane().index; }
uint3 BlockIndex() { return Block::Running().index(); }
int Lane() { return static_cast<int>(Block::Running().lane().bit); }
int SyncBlock(BlockVote vote, int predicate) { return Block::Running().SyncBlock(vote, predicate); }
void SyncWarp(unsigned mask) { Block::Running().SyncWarp(mask); }
uint64_t Shuffle(unsigned mask, uint64_t bits, int source, const char* name) {
  return Block::Running().Shuffle(mask, bits, source, name);
}
unsigned WarpVote(unsigned mask, bool predicate, Vote vote) {
  return Block::Running().WarpVote(mask, predicate, vote);
}

}  // namespace metp::emulation
