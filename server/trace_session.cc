#include "server/trace_session.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace metp {
namespace {

/// That a client has not read yet.
constexpr size_t kMostBytes = size_t{256} << 20;

}  // namespace

void TraceSession::Ordered(int ranks, int steps) {
  MutexLock lock(mutex_);
  ranks_ = ranks;
  expected_ += steps;
  if (!whole_.has_value()) whole_.emplace(ranks, steps_);
}

bool TraceSession::SentAll() const {
  for (int rank = 0; rank < ranks_; ++rank) {
    if (whole_->Count(rank) < expected_) return false;
  }
  return true;
}

TraceSession::Progress TraceSession::Add(v1::TracePart part) {
  Progress progress = Progress::kGoesOn;
  {
    MutexLock lock(mutex_);
    if (end_.has_value() || !whole_.has_value()) return Progress::kGoesOn;
    whole_->Add(part);
    bytes_ += part.ByteSizeLong();
    parts_.push_back(std::move(part));
    if (whole_->First() > 0) {
      end_ = absl::OkStatus();
      progress = Progress::kDone;
    } else if (bytes_ > kMostBytes) {
      end_ = absl::ResourceExhaustedError(absl::StrCat("the trace is larger than ", kMostBytes >> 20,
                                                       " MiB, or its client reads too slowly"));
      progress = Progress::kDone;
    } else if (SentAll()) {
      progress = Progress::kOrderMore;
    }
  }
  changes_.Notify(key_);
  return progress;
}

void TraceSession::End(const absl::Status& status) {
  {
    MutexLock lock(mutex_);
    if (end_.has_value()) return;
    end_ = status;
  }
  changes_.Notify(key_);
}

TraceSession::Taken TraceSession::Take(size_t max_bytes, v1::TraceChunk& chunk, absl::Status& status) {
  MutexLock lock(mutex_);
  size_t bytes = 0;
  while (!parts_.empty()) {
    const size_t more = parts_.front().ByteSizeLong();
    if (bytes > 0 && bytes + more > max_bytes) break;
    bytes += more;
    bytes_ -= more;
    *chunk.add_parts() = std::move(parts_.front());
    parts_.pop_front();
  }
  if (bytes > 0) return Taken::kChunk;
  if (!end_.has_value()) return Taken::kNothingYet;
  status = *end_;
  return Taken::kEnd;
}

}  // namespace metp
