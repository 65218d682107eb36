#include "server/log_ring.h"

#include <algorithm>
#include <utility>

namespace metp {

void LogRing::Append(int rank, std::string text) {
  v1::LogLine line;
  line.set_offset(end());
  line.set_rank(rank);
  bytes_ += text.size();
  line.set_text(std::move(text));
  lines_.push_back(std::move(line));
  DropOverflow();
}

void LogRing::DropOverflow() {
  while (!lines_.empty() && (lines_.size() > max_lines_ || bytes_ > max_bytes_)) {
    bytes_ -= lines_.front().text().size();
    lines_.pop_front();
    ++first_;
  }
}

void LogRing::Load(const std::vector<v1::LogLine>& lines) {
  if (lines.empty()) return;
  first_ = lines.front().offset();
  for (const v1::LogLine& line : lines) {
    bytes_ += line.text().size();
    lines_.push_back(line);
  }
  DropOverflow();
  stored_ = end();
}

void LogRing::AddChanges(const std::string& job, StoreChange& change) const {
  if (stored()) return;
  const auto fresh = static_cast<size_t>(std::max<int64_t>(stored_ - first_, 0));
  change.output.push_back({job, first_, {lines_.begin() + static_cast<std::ptrdiff_t>(fresh), lines_.end()}});
}

LogRing::Read LogRing::ReadFrom(int64_t offset, std::optional<int> rank, size_t max_bytes,
                                bool stored) const {
  Read read;
  read.dropped = std::max<int64_t>(0, first_ - offset);
  const int64_t end = stored ? std::max(first_, stored_) : this->end();
  read.next = std::clamp<int64_t>(offset, first_, end);
  size_t bytes = 0;
  while (read.next < end) {
    const v1::LogLine& line = lines_[read.next - first_];
    if (!rank.has_value() || line.rank() == *rank) {
      if (!read.lines.empty() && bytes + line.text().size() > max_bytes) break;
      bytes += line.text().size() + 16;
      read.lines.push_back(line);
    }
    ++read.next;
  }
  return read;
}

}  // namespace metp
