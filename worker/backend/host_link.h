#pragma once

// Host memory beside the device's, and the copies between the two. Copies out and copies in run on two streams of
// their own, each in the order posted and each behind a point of the compute stream; Await makes the compute
// stream wait for one. Nothing else orders them, so memory that a copy reads or writes must stay as it is until
// the copy was awaited. Used from the rank's compute thread.

#include <cstdint>
#include <utility>

#include "worker/backend/tensor.h"
#include "worker/telemetry/ledger.h"

namespace metp {

struct Event;
class HostLink;

/// Host memory (page-locked where the device asks for it). Gives itself back, through the link's ledger.
class HostBlock {
 public:
  HostBlock() = default;
  HostBlock(HostBlock&& other) noexcept { *this = std::move(other); }
  HostBlock& operator=(HostBlock&& other) noexcept {
    std::swap(owner_, other.owner_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~HostBlock();
  void* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  friend class HostLink;
  HostLink* owner_ = nullptr;
  void* data_ = nullptr;
  int64_t bytes_ = 0;
};

/// A copy posted; valid for the link that gave it.
struct CopyId {
  bool in = false;  // host to device
  uint64_t number = 0;
};

/// Since they were last taken: seconds that copies took, and for which the compute stream stood waiting for one.
struct HostLinkTimes {
  double copying = 0, exposed = 0;
};

class HostLink {
 public:
  virtual ~HostLink() = default;

  /// Throws StepError(ResourceExhausted).
  HostBlock Allocate(int64_t bytes);
  /// All of `from`, contiguous, to the start of `to`; and back.
  virtual CopyId CopyOut(const Matrix& from, const HostBlock& to, const Event& after) = 0;
  virtual CopyId CopyIn(const HostBlock& from, const Matrix& to, const Event& after) = 0;
  virtual void Await(CopyId copy) = 0;
  virtual HostLinkTimes TakeTimes() = 0;

  /// What is held on the host.
  MemoryLedger& ledger() { return ledger_; }

 protected:
  friend class HostBlock;
  /// nullptr when there is none left.
  virtual void* AllocateBytes(int64_t bytes) = 0;
  virtual void FreeBytes(void* data, int64_t bytes) = 0;

 private:
  MemoryLedger ledger_;
};

}  // namespace metp
