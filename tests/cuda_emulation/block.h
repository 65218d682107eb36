#pragma once

// One block of a kernel on one host thread: its threads are fibers, which change only where they wait for each other.
//
// A thread runs until it waits, at a barrier or a warp intrinsic, or ends. Then the next of its warp runs that can, then
// one that has not begun, then another warp's. Threads that never wait thus need a single stack. The last to arrive at a
// barrier or an intrinsic completes it for all: computes what each gets, and says what is ordered by it (here.h).
//
// When none can run and not all have ended, they wait for each other for ever: a fault "deadlock", and the block is given
// up where it stands.

#include <cuda_runtime.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "tests/cuda_emulation/fiber.h"
#include "tests/cuda_emulation/here.h"
#include "tests/cuda_emulation/shared_memory.h"

namespace metp::emulation {

inline constexpr int kLanes = 32;
inline constexpr int kMaxThreads = 1024;
inline constexpr size_t kMaxExchange = 64;  // bytes of one lane

struct DeviceThread {
  uint3 index;
  Fiber* fiber;  // null: not begun, or ended
  uint32_t number, warp, bit;
  uint64_t given, taken;  // of a shuffle or a vote
  int source;             // the lane that a shuffle takes from
  const char* waits_in;   // what it waits in; null: it can run
  uint32_t waits_for;     // a warp intrinsic's mask
};

/// Lanes that wait in one warp intrinsic.
struct Meeting {
  uint32_t mask, arrived;
  const char* name;  // the intrinsic's
};

struct Warp {
  uint32_t present, begun, ended, ready,
      at_barrier;  // bits of lanes; `ready` of those that waited and can go on
  uint32_t floor;  // see here.h
  bool parts;      // some lanes synchronised without the others: `known` counts
  int meetings;    // that are not complete
  Meeting meeting[kLanes];
  int exchange;  // which of the two rooms the next exchange uses
  unsigned char room[2][kLanes * kMaxExchange];
  uint32_t known[kLanes]
                [kLanes];  // [u][t]: accesses of lane t up to this tick have happened before what u does
};

class Block {
 public:
  Block();

  /// The calling host thread's; Running() finds it fast from then on.
  static Block& OfThread();
  static Block& Running() { return *running_; }

  /// Runs the launch's block of this index to its end; false: it was given up.
  bool Run(const KernelCall& call, uint3 index, uint32_t number, size_t shared_bytes);

  // From the kernel (warp.cc, barrier.cc).
  DeviceThread& lane() { return *lane_; }
  uint3 index() const { return index_; }
  int SyncBlock(BlockVote vote, int predicate);
  void SyncWarp(unsigned mask);
  uint64_t Shuffle(unsigned mask, uint64_t bits, int source, const char* name);
  unsigned WarpVote(unsigned mask, bool predicate, Vote vote);
  const unsigned char* Exchange(const void* mine, size_t bytes);

 private:
  static void FiberMain(boost::context::detail::transfer_t from);

  // block.cc: the threads' coming and going.
  void Reset(uint32_t number);
  void NewTicks();
  void RunThread();
  DeviceThread* Next();
  void Enter(DeviceThread& lane);
  void GoTo(DeviceThread& lane);
  void Suspend(const char* waits_in, uint32_t waits_for);
  void End();
  /// `why` makes the words: outside of the kernel, as what it calls may be instrumented.
  template <typename Why>
  [[noreturn]] void GiveUp(const Why& why) {
    here.in_kernel = false;
    ReportDeadlock(why());
    Leave();
  }
  static void ReportDeadlock(const std::string& why);
  /// Nothing on this stack is destroyed.
  [[noreturn]] void Leave();
  std::string WhoWaits() const;
  void UpdateHere();

  // barrier.cc
  bool BarrierIsFull() const { return waiting_ == live_ && live_ > 0; }
  void CompleteBarrier();

  // warp.cc
  void Meet(unsigned mask, const char* name, bool ended_may_lack);
  bool Complete(Warp& warp, int which, bool ended_may_lack);
  void CompleteAfterEnd(Warp& warp);
  void GiveResults(Warp& warp, const Meeting& meeting);
  void Order(Warp& warp, uint32_t mask);

  static __thread Block* running_;

  FiberPool fibers_;
  Fiber outside_;  // the host thread's own stack
  SharedMemory shared_;
  std::unique_ptr<DeviceThread[]> lanes_;
  std::unique_ptr<Warp[]> warps_;

  const KernelCall* call_ = nullptr;
  uint3 index_ = {};
  uint32_t number_ = 0;  // in the grid
  uint32_t threads_ = 0, warps_used_ = 0;
  DeviceThread* lane_ = nullptr;
  uint64_t actor_ = 0;
  uint32_t tick_ = 1;
  uint32_t runnable_ = 0;  // bits of warps with lanes that are ready or have not begun
  uint32_t live_ = 0, waiting_ = 0;
  BlockVote vote_ = BlockVote::kNone;
  int votes_ = 0, outcome_ = 0;
  bool given_up_ = false;
};

}  // namespace metp::emulation
