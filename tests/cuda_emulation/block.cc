#include "tests/cuda_emulation/block.h"

#include <algorithm>
#include <cstring>

#include "tests/cuda_emulation/fault_text.h"
#include "tests/cuda_emulation/faults.h"
#include "tests/cuda_emulation/operations.h"
#include "tests/cuda_emulation/sanitizers.h"

namespace metp::emulation {
namespace {

uint32_t FirstBits(uint32_t count) { return count >= kLanes ? ~uint32_t{0} : (uint32_t{1} << count) - 1; }

}  // namespace

__thread Block* Block::running_ = nullptr;

Block::Block()
    : fibers_(&Block::FiberMain),
      lanes_(std::make_unique<DeviceThread[]>(kMaxThreads)),
      warps_(std::make_unique<Warp[]>(kMaxThreads / kLanes)) {}

Block& Block::OfThread() {
  static thread_local Block block;
  running_ = &block;
  return block;
}

bool Block::Run(const KernelCall& call, uint3 index, uint32_t number, size_t shared_bytes) {
  call_ = &call;
  index_ = index;
  Reset(number);
  shared_.Begin(shared_bytes);
  NewTicks();
  Enter(*Next());
  here.in_kernel = true;
  ChangeFiber(outside_, *lane_->fiber);
  here.in_kernel = false;
  return !given_up_;
}

void Block::Reset(uint32_t number) {
  number_ = number;
  lane_ = nullptr;
  threads_ = live_ = blockDim.x * blockDim.y * blockDim.z;
  warps_used_ = (threads_ + kLanes - 1) / kLanes;
  waiting_ = 0;
  given_up_ = false;
  here.block = number;
  runnable_ = FirstBits(warps_used_);
  for (uint32_t w = 0; w < warps_used_; ++w) {
    Warp& warp = warps_[w];
    warp.present = FirstBits(threads_ - w * kLanes);
    warp.begun = warp.ended = warp.ready = warp.at_barrier = 0;
    warp.parts = false;
    warp.meetings = 0;
  }
  for (uint32_t i = 0; i < threads_; ++i) {
    const uint3 at = {i % blockDim.x, i / blockDim.x % blockDim.y, i / blockDim.x / blockDim.y};
    lanes_[i] = {at, nullptr, i, i / kLanes, i % kLanes, 0, 0, 0, nullptr, 0};
  }
}

/// A new actor for the block, all of whose accesses come behind those of the one before.
void Block::NewTicks() {
  actor_ = NewActor(here.operation, number_, OperationAt(here.operation).stream);
  tick_ = 1;
  here.block_floor = 0;
  for (uint32_t w = 0; w < warps_used_; ++w) {
    warps_[w].floor = 0;
    warps_[w].parts = false;
  }
}

void Block::FiberMain(boost::context::detail::transfer_t from) {
  BeginFiber(from);
  Block& block = *running_;
  for (;;) block.RunThread();
}

/// The thread in hand, and then whatever this stack can do next.
void Block::RunThread() {
  (*call_)();
  Fiber* const own = lane_->fiber;
  End();
  DeviceThread* const next = Next();
  if (next != nullptr && next->fiber == nullptr) {
    next->fiber = own;
    Enter(*next);
    return;
  }
  if (next == nullptr && live_ > 0) {
    lane_->fiber = own;
    GiveUp([this] { return WhoWaits(); });
  }
  fibers_.Give(own);
  if (next != nullptr) Enter(*next);
  ChangeFiber(*own, next != nullptr ? *next->fiber : outside_);
}

/// A lane that can run: of the warp in hand, ready ones first, else of the next warp that has one. Null: none.
DeviceThread* Block::Next() {
  if (runnable_ == 0) return nullptr;
  const uint32_t current = lane_ == nullptr ? 0 : lane_->warp;
  uint32_t w = current;
  if ((runnable_ >> current & 1) == 0) {
    const uint32_t above = runnable_ & ~FirstBits(current + 1);
    w = static_cast<uint32_t>(__builtin_ctz(above != 0 ? above : runnable_));
  }
  Warp& warp = warps_[w];
  uint32_t candidates = warp.ready;
  if (candidates == 0) candidates = warp.present & ~warp.begun;
  const uint32_t above = w == current && lane_ != nullptr ? candidates & ~FirstBits(lane_->bit + 1) : 0;
  const uint32_t bit = static_cast<uint32_t>(__builtin_ctz(above != 0 ? above : candidates));
  warp.ready &= ~(1u << bit);
  warp.begun |= 1u << bit;
  if ((warp.ready | (warp.present & ~warp.begun)) == 0) runnable_ &= ~(1u << w);
  return &lanes_[w * kLanes + bit];
}

/// Makes it the thread in hand; who calls then goes to its fiber.
void Block::Enter(DeviceThread& lane) {
  lane_ = &lane;
  lane.waits_in = nullptr;
  if (lane.fiber == nullptr) lane.fiber = fibers_.Take();
  here.stack_low = reinterpret_cast<uintptr_t>(lane.fiber->stack);
  here.stack_bytes = lane.fiber->bytes;
  UpdateHere();
}

void Block::UpdateHere() {
  const Warp& warp = warps_[lane_->warp];
  here.stamp =
      actor_ << kActorShift | uint64_t{tick_} << kTickShift | uint64_t{lane_->number} << kThreadShift;
  here.warp_floor = warp.floor;
  here.known = warp.parts ? warp.known[lane_->bit] : nullptr;
}

void Block::Suspend(const char* waits_in, uint32_t waits_for) {
  lane_->waits_in = waits_in;
  lane_->waits_for = waits_for;
  Fiber* const own = lane_->fiber;
  DeviceThread* const next = Next();
  if (next == nullptr) GiveUp([this] { return WhoWaits(); });
  Enter(*next);
  ChangeFiber(*own, *next->fiber);
}

void Block::End() {
  Warp& warp = warps_[lane_->warp];
  warp.ended |= 1u << lane_->bit;
  lane_->fiber = nullptr;
  --live_;
  if (warp.meetings > 0) CompleteAfterEnd(warp);
  if (BarrierIsFull()) CompleteBarrier();
}

void Block::ReportDeadlock(const std::string& why) {
  AddFault("deadlock", NameOf(OperationAt(here.operation)), why);
}

void Block::Leave() {
  given_up_ = true;
  Fiber* const own = lane_->fiber;
  for (uint32_t i = 0; i < threads_; ++i) {
    Fiber* const fiber = std::exchange(lanes_[i].fiber, nullptr);
    if (fiber != nullptr && fiber != own) fibers_.GiveUp(fiber);
  }
  Fiber left = {};  // of nobody: this stack begins anew
  left.stack = own->stack;
  left.bytes = own->bytes;
  fibers_.GiveUp(own);
  ChangeFiber(left, outside_);
  __builtin_unreachable();
}

/// "kernel K, block (0,0,0): 32 threads wait in __syncthreads, ..., 3 have ended".
std::string Block::WhoWaits() const {
  struct Group {
    const char* name;
    uint32_t count, first;
  };
  std::array<Group, 8> groups = {};
  size_t used = 0;
  for (uint32_t i = 0; i < threads_; ++i) {
    const char* const name = lanes_[i].waits_in;
    if (name == nullptr || (warps_[lanes_[i].warp].ended >> lanes_[i].bit & 1) != 0) continue;
    size_t g = 0;
    while (g < used && std::strcmp(groups[g].name, name) != 0) ++g;
    if (g == groups.size()) continue;
    if (g == used) groups[used++] = {name, 0, i};
    ++groups[g].count;
  }
  const Operation& operation = OperationAt(here.operation);
  std::string text = NameOf(operation) + ", block " + Coordinates(number_, gridDim) + ":";
  for (size_t g = 0; g < used; ++g) {
    text += " " + std::to_string(groups[g].count) + " threads, the first " +
            Coordinates(groups[g].first, blockDim) + ", wait in " + groups[g].name + ";";
  }
  return text + " " + std::to_string(threads_ - live_) + " have ended";
}

}  // namespace metp::emulation
