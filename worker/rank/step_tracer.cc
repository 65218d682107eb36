#include "worker/rank/step_tracer.h"

#include <chrono>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "proto/support/common_steps.h"

namespace metp {

namespace {

constexpr size_t kSpanHeadBytes = 6;  // its tag and its length, at most

}  // namespace

TraceParts::TraceParts(int rank, int step, const Send& send) : send_(send) {
  part_.set_rank(rank);
  part_.set_step(step);
}

void TraceParts::Add(std::string_view track, std::string name, double start, double seconds) {
  v1::TraceSpan span;
  span.set_track(std::string(track));
  span.set_name(std::move(name));
  span.set_start(start);
  span.set_seconds(seconds);
  const size_t bytes = span.ByteSizeLong() + kSpanHeadBytes;
  if (part_.spans_size() == kSpansInPart || (part_.spans_size() > 0 && bytes_ + bytes > kBytesInPart)) {
    send_(part_);
    part_.clear_spans();
    bytes_ = 0;
  }
  bytes_ += bytes;
  *part_.add_spans() = std::move(span);
}

void TraceParts::End() {
  part_.set_last(true);
  send_(part_);
}

double StepTracer::UnixTime() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

StepTracer::~StepTracer() { trainer_.set_timeline(nullptr); }

void StepTracer::BeforeStep() {
  if (orders_ == nullptr) return;
  if (orders_->load() != 0) {
    const int order = orders_->exchange(0);
    left_ = order > 0 ? order + kMoreTracedSteps : 0;
    trainer_.set_timeline(left_ > 0 ? &timeline_ : nullptr);
  }
  if (left_ > 0) {
    begin_ = backend_.Record();
  } else {
    origin_.reset();
  }
}

void StepTracer::AfterStep(const v1::StepReport& report) {
  if (left_ == 0) return;
  const Event end = backend_.Record();
  backend_.Synchronize();
  if (!origin_.has_value()) origin_ = now_() - backend_.TimeOf(end);
  TraceParts parts(report.rank(), report.step(), send_);
  parts.Add(kStepTrack, absl::StrCat("step ", report.step()), *origin_ + backend_.TimeOf(begin_),
            backend_.TimeOf(end) - backend_.TimeOf(begin_));
  for (const Timeline::Span& span : timeline_.spans())
    parts.Add(span.track(), span.Title(), *origin_ + span.start, span.seconds);
  parts.End();
  timeline_.Clear();
  if (--left_ == 0) trainer_.set_timeline(nullptr);
}

}  // namespace metp
