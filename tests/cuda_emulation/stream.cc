#include "tests/cuda_emulation/stream.h"

#include <utility>

#include "tests/cuda_emulation/here.h"

using metp::emulation::Clock;
using metp::emulation::Fence;
using metp::emulation::here;
using metp::emulation::Operation;

namespace {

thread_local CUstream_st* in_hand = nullptr;

}  // namespace

namespace metp::emulation {

void Fence::Pass(std::shared_ptr<const Clock> clock) {
  const std::lock_guard lock(mutex_);
  clock_ = std::move(clock);
  time_ = std::chrono::steady_clock::now();
  changed_.notify_all();
}

bool Fence::passed() const {
  const std::lock_guard lock(mutex_);
  return clock_ != nullptr;
}

std::shared_ptr<const Clock> Fence::Await() const {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return clock_ != nullptr; });
  return clock_;
}

std::chrono::steady_clock::time_point Fence::time() const {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return clock_ != nullptr; });
  return time_;
}

}  // namespace metp::emulation

CUstream_st::CUstream_st(int device, bool blocking)
    : device_(device), blocking_(blocking), slot_(metp::emulation::TakeSlot()) {
  metp::emulation::ReserveAddressSpace();
  thread_ = std::thread([this] { Run(); });
}

CUstream_st::~CUstream_st() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  thread_.join();
  metp::emulation::GiveSlot(slot_);
}

void CUstream_st::Push(const Operation* operation, Work work) {
  Item item = {operation != nullptr, {}, std::move(work), metp::emulation::HostClock()};
  if (operation != nullptr) item.operation = *operation;
  const std::lock_guard lock(mutex_);
  queue_.push_back(std::move(item));
  changed_.notify_all();
}

std::shared_ptr<Fence> CUstream_st::Record() {
  auto fence = std::make_shared<Fence>();
  Push(nullptr, [this, fence] { fence->Pass(std::make_shared<const Clock>(clock_)); });
  return fence;
}

void CUstream_st::Wait(const std::shared_ptr<Fence>& fence) {
  Push(nullptr, [this, fence] { clock_.Join(*fence->Await()); });
}

CUstream_st* CUstream_st::InHand() { return in_hand; }

void CUstream_st::Run() {
  in_hand = this;
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    Item item = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    Do(item);
    item = {};  // what the work holds goes before the next item is taken
    lock.lock();
  }
}

void CUstream_st::Do(const Item& item) {
  if (item.host != joined_) {
    clock_.Join(*item.host);
    joined_ = item.host;
  }
  if (!item.touches) return item.work();
  Operation operation = item.operation;
  operation.stream = slot_;
  here = {};
  here.operation = NewOperation(operation);
  clock_.Advance(slot_, here.operation);
  here.clock = clock_.data();
  here.slots = clock_.slots();
  here.stamp = metp::emulation::NewActor(here.operation, 0, slot_) << metp::emulation::kActorShift |
               uint64_t{1} << metp::emulation::kTickShift;
  item.work();
  here = {};
}
