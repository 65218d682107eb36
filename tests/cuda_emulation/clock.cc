#include "tests/cuda_emulation/clock.h"

#include <algorithm>
#include <mutex>

namespace metp::emulation {
namespace {

struct Slots {
  std::mutex mutex;
  uint32_t made = 0;
  std::vector<uint32_t> free;
};
Slots& AllSlots() {
  static Slots* const slots = new Slots;
  return *slots;
}

struct Waits {
  std::mutex mutex;
  std::shared_ptr<const Clock> all = std::make_shared<Clock>();
};
Waits& AllWaits() {
  static Waits* const waits = new Waits;
  return *waits;
}

std::shared_ptr<const Clock> FirstClock() {
  Waits& waits = AllWaits();
  const std::lock_guard lock(waits.mutex);
  return waits.all;
}

std::shared_ptr<const Clock> Joined(const std::shared_ptr<const Clock>& a, const Clock& b) {
  auto joined = std::make_shared<Clock>(*a);
  joined->Join(b);
  return joined;
}

thread_local std::shared_ptr<const Clock> host_clock = FirstClock();

}  // namespace

void Clock::Join(const Clock& other) {
  if (last_.size() < other.last_.size()) last_.resize(other.last_.size());
  for (size_t i = 0; i < other.last_.size(); ++i) last_[i] = std::max(last_[i], other.last_[i]);
}

void Clock::Advance(uint32_t slot, uint32_t operation) {
  if (last_.size() <= slot) last_.resize(slot + 1);
  last_[slot] = operation;
}

uint32_t TakeSlot() {
  Slots& slots = AllSlots();
  const std::lock_guard lock(slots.mutex);
  if (slots.free.empty()) return slots.made++;
  const uint32_t slot = slots.free.back();
  slots.free.pop_back();
  return slot;
}

void GiveSlot(uint32_t slot) {
  Slots& slots = AllSlots();
  const std::lock_guard lock(slots.mutex);
  slots.free.push_back(slot);
}

std::shared_ptr<const Clock> HostClock() { return host_clock; }

void JoinHostClock(const std::shared_ptr<const Clock>& clock) {
  host_clock = Joined(host_clock, *clock);
  Waits& waits = AllWaits();
  const std::lock_guard lock(waits.mutex);
  waits.all = Joined(waits.all, *clock);
}

}  // namespace metp::emulation
