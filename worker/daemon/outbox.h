#pragma once

// What the worker has to tell the coordinator, kept until acknowledged, sent again in the next session.
// Bounded: under a long silence timelines go (a line of their rank's output says so), then the oldest steps and
// output lines (which are counted); what moves a job's state never does. Thread-safe.

#include <cstdint>
#include <functional>
#include <list>
#include <string>
#include <string_view>
#include <vector>

#include "metp/v1/worker_service.pb.h"
#include "proto/support/mutex.h"

namespace metp {

class Outbox {
 public:
  explicit Outbox(size_t max_bytes) : max_bytes_(max_bytes) {}

  /// Called, without locks held, whenever there is something new to send. Set before threads start.
  void SetListener(std::function<void()> listener) { listener_ = std::move(listener); }

  /// Gives the event its number and keeps it.
  void Push(v1::WorkerEvent event) METP_EXCLUDES(mutex_);
  /// A line of a rank's output; lines that have not been sent yet travel together.
  void PushLine(const std::string& attempt, int rank, std::string_view line) METP_EXCLUDES(mutex_);

  /// A session begins: what lies above `acknowledged` is to be sent, again or at last.
  void Rewind(int64_t acknowledged) METP_EXCLUDES(mutex_);
  /// The next unsent events, about `max_bytes` at most (one at least); empty if there are none.
  v1::WorkerEvents Next(size_t max_bytes) METP_EXCLUDES(mutex_);
  void Acknowledge(int64_t sequence) METP_EXCLUDES(mutex_);

  bool empty() const METP_EXCLUDES(mutex_);
  /// Ranks whose end is not acknowledged.
  std::vector<v1::RankKey> Ended() const METP_EXCLUDES(mutex_);

 private:
  struct Entry {
    v1::WorkerEvent event;
    size_t bytes = 0;
    bool sent = false;
    int timelines = 0;  // parts of timelines that were dropped; its first line says so
  };
  void Append(v1::WorkerEvent event) METP_REQUIRES(mutex_);
  void DropOverflow() METP_REQUIRES(mutex_);
  void DropTimelines() METP_REQUIRES(mutex_);
  /// So many more, in this line of output or in one that takes the place of a timeline.
  void NoteTimelines(Entry& entry, int more) METP_REQUIRES(mutex_);
  void DropThrough(int64_t sequence) METP_REQUIRES(mutex_);

  const size_t max_bytes_;
  std::function<void()> listener_;
  mutable Mutex mutex_;
  std::list<Entry> entries_ METP_GUARDED_BY(mutex_);  // by ascending sequence; the sent ones first
  int64_t last_sequence_ METP_GUARDED_BY(mutex_) = 0;
  size_t bytes_ METP_GUARDED_BY(mutex_) = 0;
};

}  // namespace metp
