#pragma once

// A stream: a host thread that works off a queue. What is enqueued returns at once; the thread's clock (clock.h) says what
// has happened before the item in hand.

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "tests/cuda_emulation/clock.h"
#include "tests/cuda_emulation/operations.h"

namespace metp::emulation {

/// A point in a stream, behind what was enqueued before it. An event is the fence that was recorded last.
class Fence {
 public:
  void Pass(std::shared_ptr<const Clock> clock);
  bool passed() const;
  /// What had happened before, and when it passed; both wait for that.
  std::shared_ptr<const Clock> Await() const;
  std::chrono::steady_clock::time_point time() const;

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::shared_ptr<const Clock> clock_;  // null: not passed
  std::chrono::steady_clock::time_point time_;
};

}  // namespace metp::emulation

struct CUstream_st {
 public:
  using Work = std::function<void()>;

  CUstream_st(int device, bool blocking);
  /// Does what is enqueued first.
  ~CUstream_st();

  /// `operation` null: the work touches no device memory (a fence, a wait).
  void Push(const metp::emulation::Operation* operation, Work work);
  std::shared_ptr<metp::emulation::Fence> Record();
  void Wait(const std::shared_ptr<metp::emulation::Fence>& fence);

  int device() const { return device_; }
  /// Ordered with the default stream, by the toolkit's rules.
  bool blocking() const { return blocking_; }
  uint32_t slot() const { return slot_; }
  /// From work of this stream only.
  metp::emulation::Clock& clock() { return clock_; }

  /// Whose thread the calling one is; null on host threads.
  static CUstream_st* InHand();

 private:
  struct Item {
    bool touches = false;
    metp::emulation::Operation operation;
    Work work;
    std::shared_ptr<const metp::emulation::Clock> host;  // of who enqueued it
  };
  void Run();
  void Do(const Item& item);

  const int device_;
  const bool blocking_;
  const uint32_t slot_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> queue_;
  bool stopping_ = false;
  metp::emulation::Clock clock_;
  std::shared_ptr<const metp::emulation::Clock> joined_;  // the last host clock in clock_
  std::thread thread_;
};

namespace metp::emulation {

/// The stream behind a handle: null is the default stream of the calling thread's device.
CUstream_st& StreamOf(cudaStream_t stream);
/// Puts an operation on a stream, and the default stream's ordering around it.
void EnqueueOperation(CUstream_st& stream, const Operation& operation, std::function<void()> work);
/// Waits for the stream and takes over its clock.
void Drain(CUstream_st& stream);
/// Drains all streams of a device.
void DrainDevice(int device);

}  // namespace metp::emulation
