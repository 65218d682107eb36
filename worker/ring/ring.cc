#include "worker/ring/ring.h"

#include <cstdlib>

namespace metp {

void Ring::Board(std::shared_ptr<Traveller> traveller) {
  if (!traveller->done()) aboard_.push_back(std::move(traveller));
}

void Ring::Step(Pass pass, const std::function<void()>& unit) {
  if (where_ != nullptr) where_->Enter(PassName(pass).data());
  backend_.Name(PassName(pass));
  HopId hop = 0;
  if (!aboard_.empty()) {  // the same on every rank, even where a rank's own part of the hop is empty
    Exchange exchange;
    for (const auto& traveller : aboard_) traveller->Depart(exchange);
    hop = communicator_.Post(std::move(exchange), backend_.Record());
    hops_.emplace_back(hop, pass);
  }
  Compute(pass, unit);
  if (hop == 0) return;
  if (where_ != nullptr) where_->AwaitHop(hop);
  ThrowIfError(communicator_.Await(hop));
  if (where_ != nullptr) where_->HopDone();
  Compute(pass, [&] {
    for (const auto& traveller : aboard_) traveller->Arrive();
  });
  std::erase_if(aboard_, [](const auto& traveller) { return traveller->done(); });
}

void Ring::Compute(Pass pass, const std::function<void()>& work) {
  Event start = backend_.Record();
  work();
  spans_.push_back({pass, std::move(start), backend_.Record()});
}

void Ring::Finish(Pass pass, const Traveller& traveller) {
  while (!traveller.done()) Step(pass, [] {});
}

void Ring::Drain(Pass pass) {
  while (!aboard_.empty()) Step(pass, [] {});
}

void Ring::Enter(std::string_view pass, const HopRecord& record) {
  timeline_->Add(Stream::kRing, pass, record.start, record.communication);
  timeline_->Add(Stream::kWait, pass, record.stood, record.skew, kSkew);
  timeline_->Add(Stream::kWait, pass, record.stood + record.skew, record.exposed, kExposed);
}

PassTable Ring::TakeTimes() {
  backend_.Synchronize();
  PassTable times = {};
  for (const Span& span : spans_) {
    const double compute = backend_.Seconds(span.start, span.end);
    times[static_cast<int>(span.pass)].compute += compute;
    if (timeline_ != nullptr)
      timeline_->Add(Stream::kCompute, PassName(span.pass), backend_.TimeOf(span.start), compute);
  }
  spans_.clear();
  size_t next = 0;
  for (const HopRecord& record : communicator_.TakeRecords()) {
    while (next < hops_.size() && hops_[next].first != record.hop) ++next;
    if (next == hops_.size()) std::abort();  // records come in the order posted
    PassSeconds& seconds = times[static_cast<int>(hops_[next].second)];
    seconds.communication += record.communication;
    seconds.exposed += record.exposed;
    seconds.skew += record.skew;
    if (timeline_ != nullptr) Enter(PassName(hops_[next].second), record);
    ++seconds.hops;
    if (record.exposed > 0) ++seconds.exposed_hops;
    sent_bytes_ += record.sent_bytes;
  }
  hops_.clear();
  return times;
}

}  // namespace metp
