#include "worker/daemon/outbox.h"

#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"

namespace metp {
namespace {

constexpr size_t kLinesPerEventBytes = 64 << 10;

bool Droppable(const v1::WorkerEvent& event) { return event.has_step() || event.has_output(); }

}  // namespace

void Outbox::Append(v1::WorkerEvent event) {
  event.set_sequence(++last_sequence_);
  Entry entry;
  entry.bytes = event.ByteSizeLong();
  entry.event = std::move(event);
  bytes_ += entry.bytes;
  entries_.push_back(std::move(entry));
  DropOverflow();
}

void Outbox::Push(v1::WorkerEvent event) {
  {
    MutexLock lock(mutex_);
    Append(std::move(event));
  }
  if (listener_) listener_();
}

void Outbox::PushLine(const std::string& attempt, int rank, std::string_view line) {
  {
    MutexLock lock(mutex_);
    Entry* last = entries_.empty() ? nullptr : &entries_.back();
    if (last != nullptr && !last->sent && last->event.has_output() && last->event.attempt() == attempt &&
        last->event.rank() == rank && last->bytes < kLinesPerEventBytes) {
      last->event.mutable_output()->add_lines(std::string(line));
      last->bytes += line.size() + 4;
      bytes_ += line.size() + 4;
      DropOverflow();
    } else {
      v1::WorkerEvent event;
      event.set_attempt(attempt);
      event.set_rank(rank);
      event.mutable_output()->add_lines(std::string(line));
      Append(std::move(event));
    }
  }
  if (listener_) listener_();
}

void Outbox::NoteTimelines(Entry& entry, int more) {
  entry.timelines += more;
  v1::RankOutput& output = *entry.event.mutable_output();
  if (output.lines().empty()) output.add_lines();
  output.set_lines(0, absl::StrCat("metp-worker: timeline parts dropped: ", entry.timelines,
                                   "; the coordinator is too slow or away, and a trace lacks them"));
  bytes_ -= entry.bytes;
  entry.bytes = entry.event.ByteSizeLong();
  bytes_ += entry.bytes;
}

void Outbox::DropTimelines() {
  // A rank's first one becomes the note, in its place: before the rank's end, and not taken again by a coordinator
  // that has taken the timeline.
  std::map<std::tuple<std::string, int, bool>, Entry*> notes;
  for (auto at = entries_.begin(); at != entries_.end();) {
    if (!at->event.has_trace() && at->timelines == 0) {
      ++at;
      continue;
    }
    Entry*& note = notes[{at->event.attempt(), at->event.rank(), at->sent}];
    if (note == nullptr || at->timelines > 0) {
      note = &*at;
      if (at->event.has_trace()) NoteTimelines(*note, 1);
      ++at;
    } else {
      bytes_ -= at->bytes;
      at = entries_.erase(at);
      NoteTimelines(*note, 1);
    }
  }
}

void Outbox::DropOverflow() {
  if (bytes_ <= max_bytes_) return;
  DropTimelines();
  for (auto at = entries_.begin(); at != entries_.end() && bytes_ > max_bytes_;) {
    if (!Droppable(at->event)) {
      ++at;
      continue;
    }
    if (at->event.has_output()) {
      // The count goes to the rank's next output, or to a placeholder that takes its turn.
      const int64_t dropped = at->event.output().dropped() + at->event.output().lines_size();
      v1::WorkerEvent* heir = nullptr;
      for (auto later = std::next(at); later != entries_.end() && heir == nullptr; ++later) {
        const v1::WorkerEvent& event = later->event;
        if (event.has_output() && event.rank() == at->event.rank() &&
            event.attempt() == at->event.attempt()) {
          heir = &later->event;
        }
      }
      if (heir == nullptr) {
        bytes_ -= at->bytes;
        at->event.mutable_output()->clear_lines();
        at->timelines = 0;
        at->event.mutable_output()->set_dropped(dropped);
        at->bytes = at->event.ByteSizeLong();
        bytes_ += at->bytes;
        ++at;
        continue;
      }
      heir->mutable_output()->set_dropped(heir->output().dropped() + dropped);
    }
    bytes_ -= at->bytes;
    at = entries_.erase(at);
  }
}

void Outbox::DropThrough(int64_t sequence) {
  while (!entries_.empty() && entries_.front().event.sequence() <= sequence) {
    bytes_ -= entries_.front().bytes;
    entries_.pop_front();
  }
}

void Outbox::Rewind(int64_t acknowledged) {
  MutexLock lock(mutex_);
  DropThrough(acknowledged);
  for (Entry& entry : entries_) entry.sent = false;
}

v1::WorkerEvents Outbox::Next(size_t max_bytes) {
  MutexLock lock(mutex_);
  v1::WorkerEvents batch;
  size_t bytes = 0;
  auto at = entries_.end();
  while (at != entries_.begin() && !std::prev(at)->sent) --at;
  for (; at != entries_.end() && (bytes == 0 || bytes + at->bytes <= max_bytes); ++at) {
    bytes += at->bytes;
    at->sent = true;
    *batch.add_events() = at->event;
  }
  return batch;
}

void Outbox::Acknowledge(int64_t sequence) {
  {
    MutexLock lock(mutex_);
    DropThrough(sequence);
  }
  if (listener_) listener_();
}

bool Outbox::empty() const {
  MutexLock lock(mutex_);
  return entries_.empty();
}

std::vector<v1::RankKey> Outbox::Ended() const {
  MutexLock lock(mutex_);
  std::vector<v1::RankKey> ended;
  for (const Entry& entry : entries_) {
    if (!entry.event.has_ended()) continue;
    ended.emplace_back();
    ended.back().set_attempt(entry.event.attempt());
    ended.back().set_rank(entry.event.rank());
  }
  return ended;
}

}  // namespace metp
