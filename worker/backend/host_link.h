#pragma once

// Host memory beside the device's: copies between the two, and the optimizer's work on what lives there. Copies out,
// copies in and updates run on three streams of their own, each in the order posted, behind a point of the compute
// stream and behind the tasks named; Await makes the compute stream wait for one. Nothing else orders them, so
// memory that a task reads or writes must stay as it is until it, or a task behind it, was awaited. Used from the
// rank's compute thread.

#include <cstdint>
#include <utility>
#include <vector>

#include "worker/backend/tensor.h"
#include "worker/telemetry/ledger.h"
#include "worker/telemetry/timeline.h"

namespace metp {

struct AdamWStep;
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
    std::swap(category_, other.category_);
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
  MemoryCategory category_ = MemoryCategory::kActivations;
};

/// What was posted to one of the link's streams; valid for the link that gave it. A default one is done.
struct HostTask {
  enum Stream : uint8_t { kOut, kIn, kUpdate };
  Stream stream = kOut;
  uint64_t number = 0;  // counts from 1
};
inline constexpr int kHostStreams = 3;

/// Since they were last taken: seconds that copies and updates took, and for which the compute stream stood waiting
/// for any.
struct HostLinkTimes {
  double copying = 0, updating = 0, exposed = 0;
};

class HostLink {
 public:
  virtual ~HostLink() = default;

  /// Throws StepError(ResourceExhausted).
  HostBlock Allocate(int64_t bytes, MemoryCategory category);
  /// All of `from`, contiguous, to the start of `to`; and back.
  virtual HostTask CopyOut(const Matrix& from, const HostBlock& to, const Event& after,
                           const std::vector<HostTask>& behind = {}) = 0;
  virtual HostTask CopyIn(const HostBlock& from, const Matrix& to, const Event& after,
                          const std::vector<HostTask>& behind = {}) = 0;
  /// Backend::AdamW on the host, on the first `elements` of each block, fp32. `narrow`, unless null, also gets the
  /// new weights, rounded to bf16.
  virtual HostTask AdamW(const AdamWStep& step, int64_t elements, const HostBlock& g, const HostBlock& m,
                         const HostBlock& v, const HostBlock& w, const HostBlock* narrow,
                         const std::vector<HostTask>& behind) = 0;
  virtual void Await(HostTask task) = 0;
  virtual HostLinkTimes TakeTimes() = 0;
  /// From now on, what TakeTimes adds up is also entered here, span by span, by the time that it returns; null: nowhere.
  /// Must outlive the link.
  void set_timeline(Timeline* timeline) { timeline_ = timeline; }

  /// What is held on the host.
  MemoryLedger& ledger() { return ledger_; }

 protected:
  friend class HostBlock;
  /// nullptr when there is none left.
  virtual void* AllocateBytes(int64_t bytes) = 0;
  virtual void FreeBytes(void* data, int64_t bytes) = 0;
  /// One task that is done.
  void Note(HostTask::Stream stream, double start, double seconds);
  /// The compute stream stood waiting for one.
  void NoteWait(HostTask::Stream stream, double start, double seconds);

 private:
  Timeline* timeline_ = nullptr;
  MemoryLedger ledger_;
};

}  // namespace metp
