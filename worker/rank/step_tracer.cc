#include "worker/rank/step_tracer.h"

#include <chrono>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "proto/support/common_steps.h"

namespace metp {

namespace {

double UnixTime() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// The spans of one step, a part as soon as it is full.
class Parts {
 public:
  Parts(const v1::StepReport& report, const StepTracer::Send& send) : send_(send) {
    part_.set_rank(report.rank());
    part_.set_step(report.step());
  }
  void Add(std::string_view track, std::string name, double start, double seconds) {
    if (part_.spans_size() == kSpansInPart) {
      send_(part_);
      part_.clear_spans();
    }
    v1::TraceSpan& span = *part_.add_spans();
    span.set_track(std::string(track));
    span.set_name(std::move(name));
    span.set_start(start);
    span.set_seconds(seconds);
  }
  void End() {
    part_.set_last(true);
    send_(part_);
  }

 private:
  const StepTracer::Send& send_;
  v1::TracePart part_;
};

}  // namespace

StepTracer::~StepTracer() { trainer_.set_timeline(nullptr); }

void StepTracer::BeforeStep() {
  if (orders_ == nullptr) return;
  if (orders_->load() > 0) {
    left_ = orders_->exchange(0) + kMoreTracedSteps;
    trainer_.set_timeline(&timeline_);
  }
  if (left_ > 0) begin_ = backend_.Record();
}

void StepTracer::AfterStep(const v1::StepReport& report) {
  if (left_ == 0) return;
  const Event end = backend_.Record();
  backend_.Synchronize();
  const double unix_time = UnixTime() - backend_.TimeOf(end);  // of the backend's clock at 0
  Parts parts(report, send_);
  parts.Add(kStepTrack, absl::StrCat("step ", report.step()), unix_time + backend_.TimeOf(begin_),
            report.step_seconds());
  for (const Timeline::Span& span : timeline_.spans())
    parts.Add(span.track(), span.Title(), unix_time + span.start, span.seconds);
  parts.End();
  timeline_.Clear();
  if (--left_ == 0) trainer_.set_timeline(nullptr);
}

}  // namespace metp
