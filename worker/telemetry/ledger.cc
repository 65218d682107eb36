#include "worker/telemetry/ledger.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace metp {

std::string_view MemoryCategoryName(MemoryCategory category) {
  static constexpr std::string_view kNames[kMemoryCategories] = {
      "weights", "optimizer", "gradients", "activations", "transient", "ring", "workspace"};
  return kNames[static_cast<int>(category)];
}

absl::Status MemoryLedger::Take(MemoryCategory category, std::string_view tag, int64_t bytes) {
  MutexLock lock(mutex_);
  if (bytes > capacity_ - total_) {
    std::string held;
    for (int i = 0; i < kMemoryCategories; ++i) {
      absl::StrAppend(&held, i ? ", " : "", std::string(MemoryCategoryName(static_cast<MemoryCategory>(i))),
                      " ", current_[i]);
    }
    return absl::ResourceExhaustedError(absl::StrCat("out of memory: asked for ", bytes, " bytes of ",
                                                     std::string(MemoryCategoryName(category)), ", ", total_,
                                                     " of ", capacity_, " are held (", held, ")"));
  }
  current_[static_cast<int>(category)] += bytes;
  total_ += bytes;
  if (total_ > peak_) {
    peak_ = total_;
    at_peak_ = current_;
  }
  if (!tag.empty()) {
    auto it = tags_.find(tag);
    if (it == tags_.end()) it = tags_.emplace(tag, Tag{}).first;
    it->second.current += bytes;
    it->second.peak = std::max(it->second.peak, it->second.current);
  }
  return absl::OkStatus();
}

void MemoryLedger::Release(MemoryCategory category, std::string_view tag, int64_t bytes) {
  MutexLock lock(mutex_);
  current_[static_cast<int>(category)] -= bytes;
  total_ -= bytes;
  if (auto it = tags_.find(tag); it != tags_.end()) it->second.current -= bytes;
}

BytesByCategory MemoryLedger::current() const {
  MutexLock lock(mutex_);
  return current_;
}

int64_t MemoryLedger::current_total() const {
  MutexLock lock(mutex_);
  return total_;
}

int64_t MemoryLedger::peak_total() const {
  MutexLock lock(mutex_);
  return peak_;
}

BytesByCategory MemoryLedger::at_peak() const {
  MutexLock lock(mutex_);
  return at_peak_;
}

int64_t MemoryLedger::tag_peak(std::string_view tag) const {
  MutexLock lock(mutex_);
  auto it = tags_.find(tag);
  return it == tags_.end() ? 0 : it->second.peak;
}

std::map<std::string, int64_t> MemoryLedger::tag_peaks() const {
  MutexLock lock(mutex_);
  std::map<std::string, int64_t> peaks;
  for (const auto& [name, tag] : tags_) peaks[name] = tag.peak;
  return peaks;
}

void MemoryLedger::ResetPeaks() {
  MutexLock lock(mutex_);
  peak_ = total_;
  at_peak_ = current_;
  for (auto& [name, tag] : tags_) tag.peak = tag.current;
}

}  // namespace metp
