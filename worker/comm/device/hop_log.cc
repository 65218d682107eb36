#include "worker/comm/device/hop_log.h"

#include <algorithm>
#include <utility>

#include "worker/comm/transport.h"

namespace metp::cuda {

HopLog::Hop& HopLog::Post(const Exchange& exchange) {
  Hop& hop = hops_.emplace_back();
  hop.id = ++last_;
  hop.sent_bytes = TotalBytes(exchange.sends);
  hop.sends = !exchange.sends.empty();
  hop.receives = !exchange.receives.empty();
  return hop;
}

HopLog::Hop* HopLog::Find(HopId id) {
  const HopId first = last_ + 1 - hops_.size();
  return id < first || id > last_ ? nullptr : &hops_[id - first];
}

HopLog::Hop* HopLog::InHand() {
  while (in_hand_ <= last_) {
    Hop* hop = Find(in_hand_);
    if (hop != nullptr && !hop->passed) return hop;
    ++in_hand_;
  }
  return nullptr;
}

bool HopLog::all_awaited() const {
  return std::all_of(hops_.begin(), hops_.end(), [](const Hop& hop) { return hop.awaited; });
}

void HopLog::Await(Hop& hop, Event before, Event after) {
  hop.awaited = true;
  waits_.push_back({hop.id, last_awaited_ + 1, std::move(before), std::move(after)});
  last_awaited_ = std::max(last_awaited_, hop.id);
}

std::vector<double> HopLog::Measure(const Backend& backend) {
  std::vector<double> durations;
  for (HopId id = last_measured_ + 1; id <= last_awaited_; ++id) {
    Hop& hop = *Find(id);
    hop.duration = std::max(0.0, backend.Seconds(*hop.ready, *hop.done));
    durations.push_back(hop.duration);
  }
  return durations;
}

std::vector<HopRecord> HopLog::Take(const Backend& backend, const std::vector<Neighbours>& neighbours) {
  for (size_t i = 0; last_measured_ < last_awaited_; ++i) {
    Hop& hop = *Find(++last_measured_);
    hop.communication = hop.duration;
    if (neighbours.empty()) continue;
    if (hop.receives) hop.communication = std::min(hop.communication, neighbours[i].previous);
    if (hop.sends) hop.communication = std::min(hop.communication, neighbours[i].next);
  }
  std::vector<HopRecord> records;
  for (const Wait& wait : waits_) records.push_back(RecordOf(backend, wait));
  waits_.clear();
  while (!hops_.empty() && hops_.front().awaited) hops_.pop_front();
  return records;
}

HopRecord HopLog::RecordOf(const Backend& backend, const Wait& wait) {
  const Hop& hop = *Find(wait.hop);
  HopRecord record;
  record.hop = hop.id;
  record.sent_bytes = hop.sent_bytes;
  record.communication = hop.communication;
  record.start = backend.TimeOf(*hop.ready) + hop.duration - hop.communication;
  for (HopId id = wait.first; id <= wait.hop;
       ++id) {  // hops before it may have been what the stream stood at
    const Hop& stood_at = *Find(id);
    const double from = backend.Seconds(*stood_at.ready, wait.before);
    const double to = backend.Seconds(*stood_at.ready, wait.after);
    const double stood = std::max(0.0, std::min(to, stood_at.duration) - std::max(from, 0.0));
    if (record.exposed + record.skew == 0)
      record.stood = backend.TimeOf(*stood_at.ready) + std::max(from, 0.0);
    const double exposed = std::min(stood, stood_at.communication);
    record.exposed += exposed;
    record.skew += stood - exposed;
  }
  return record;
}

}  // namespace metp::cuda
