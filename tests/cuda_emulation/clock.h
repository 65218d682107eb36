#pragma once

// What has happened before: vector clocks over streams. Each stream has a slot; a clock says for each slot which operation
// is the last that has happened before. Operations are numbered over the process, and a stream's grow along the stream.
// (Lamport 1978; Mattern, "Virtual Time and Global States of Distributed Systems", 1989.)
//
// A stream's clock is used by its thread only. A host thread has one too: what it has waited for happened before what it
// enqueues from then on. A new host thread begins with what any has waited for. Two host threads that tell each other
// otherwise are not known of.

#include <cstdint>
#include <memory>
#include <vector>

#include "tests/cuda_emulation/engine.h"

namespace metp::emulation {

class Clock {
 public:
  void Join(const Clock& other);
  void Advance(uint32_t slot, uint32_t operation);
  const uint32_t* data() const { return last_.data(); }
  uint32_t slots() const { return static_cast<uint32_t>(last_.size()); }

 private:
  std::vector<uint32_t> last_;
};

/// A slot for a new stream; given back, it goes to another, which then counts as ordered behind.
uint32_t TakeSlot();
void GiveSlot(uint32_t slot);

/// The calling host thread's.
std::shared_ptr<const Clock> HostClock();
void JoinHostClock(const std::shared_ptr<const Clock>& clock);

}  // namespace metp::emulation
