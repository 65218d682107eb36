#pragma once

// A job's output, bounded in lines and bytes. Lines are numbered from 0; what was dropped to stay within the
// bounds is said, never hidden. Not thread-safe: the job table guards it.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "metp/v1/status.pb.h"
#include "server/store/store.h"

namespace metp {

class LogRing {
 public:
  LogRing(size_t max_lines, size_t max_bytes) : max_lines_(max_lines), max_bytes_(max_bytes) {}

  void Append(int rank, std::string text);

  struct Read {
    int64_t dropped = 0;             // lines between `offset` and the first kept one
    std::vector<v1::LogLine> lines;  // about max_bytes at most, one line at least if there is any
    int64_t next = 0;                // where to read on
  };
  /// Lines from `offset` on, `stored`: only those that the store has; with `rank`, that rank's only (`next` passes over the others).
  Read ReadFrom(int64_t offset, std::optional<int> rank, size_t max_bytes, bool stored) const;
  int64_t end() const { return first_ + static_cast<int64_t>(lines_.size()); }

  /// As the store had it.
  void Load(const std::vector<v1::LogLine>& lines);
  /// What the store must be told of, since the last ClearChanges.
  void AddChanges(const std::string& job, StoreChange& change) const;
  void ClearChanges() { stored_ = end(); }
  bool stored() const { return stored_ == end(); }

 private:
  void DropOverflow();

  const size_t max_lines_, max_bytes_;
  std::deque<v1::LogLine> lines_;
  int64_t first_ = 0;  // number of lines_.front()
  size_t bytes_ = 0;
  int64_t stored_ = 0;  // the store has the lines before
};

}  // namespace metp
