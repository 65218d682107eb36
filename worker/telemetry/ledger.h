#pragma once

// The memory ledger: every byte a rank takes goes through one, by category and tag, so that "peak memory" is
// counted and never estimated. One per rank; any thread may call it.

#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "proto/support/mutex.h"

namespace metp {

enum class MemoryCategory { kWeights, kOptimizer, kGradients, kActivations, kTransient, kRing, kWorkspace };
inline constexpr int kMemoryCategories = 7;

/// "weights", "optimizer", ...: the names used in reports and metrics.
std::string_view MemoryCategoryName(MemoryCategory category);

using BytesByCategory = std::array<int64_t, kMemoryCategories>;

class MemoryLedger {
 public:
  /// `capacity`: bytes the device may hold.
  explicit MemoryLedger(int64_t capacity = std::numeric_limits<int64_t>::max()) : capacity_(capacity) {}
  MemoryLedger(const MemoryLedger&) = delete;
  MemoryLedger& operator=(const MemoryLedger&) = delete;

  /// Enters an allocation. ResourceExhausted when it would pass the capacity, naming what was asked for and
  /// what is held by category; nothing is entered then. `tag` (may be empty) names a purpose whose own peak
  /// is of interest.
  absl::Status Take(MemoryCategory category, std::string_view tag, int64_t bytes);
  /// Must match an earlier Take.
  void Release(MemoryCategory category, std::string_view tag, int64_t bytes);

  BytesByCategory current() const;
  int64_t current_total() const;
  int64_t peak_total() const;
  /// What each category held at the moment of the peak; sums to peak_total().
  BytesByCategory at_peak() const;
  /// Most bytes ever held at once under `tag`; 0 for a tag never used.
  int64_t tag_peak(std::string_view tag) const;
  std::map<std::string, int64_t> tag_peaks() const;
  /// Starts the peaks (total and tags) afresh from what is held now.
  void ResetPeaks();

 private:
  struct Tag {
    int64_t current = 0, peak = 0;
  };
  const int64_t capacity_;
  mutable Mutex mutex_;
  BytesByCategory current_ METP_GUARDED_BY(mutex_) = {};
  BytesByCategory at_peak_ METP_GUARDED_BY(mutex_) = {};
  int64_t total_ METP_GUARDED_BY(mutex_) = 0;
  int64_t peak_ METP_GUARDED_BY(mutex_) = 0;
  std::map<std::string, Tag, std::less<>> tags_ METP_GUARDED_BY(mutex_);
};

}  // namespace metp
