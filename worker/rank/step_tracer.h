#pragma once

// The timelines of a rank's steps, on order: cuts them into parts, with times as Unix times, for whoever watches over the rank.
// Costs a look at one number a step while none are ordered.

#include <atomic>
#include <functional>

#include "metp/v1/report.pb.h"
#include "worker/rank/trainer.h"

namespace metp {

inline constexpr int kSpansInPart = 4000;  // well under the 1 MiB of a message

/// How many steps are to be traced, and kMoreTracedSteps beyond these; 0: none. Set from any thread, taken by the compute thread at its next step.
using TraceOrders = std::atomic<int>;

/// Belongs to the rank's compute thread.
class StepTracer {
 public:
  using Send = std::function<void(const v1::TracePart&)>;
  /// `orders` may be null: then nothing is ever traced. All must outlive the tracer.
  StepTracer(Trainer& trainer, Backend& backend, TraceOrders* orders, Send send)
      : trainer_(trainer), backend_(backend), orders_(orders), send_(std::move(send)) {}
  ~StepTracer();
  StepTracer(const StepTracer&) = delete;
  StepTracer& operator=(const StepTracer&) = delete;

  void BeforeStep();
  /// `report`: as the trainer gave it.
  void AfterStep(const v1::StepReport& report);

 private:
  Trainer& trainer_;
  Backend& backend_;
  TraceOrders* const orders_;
  const Send send_;
  Timeline timeline_;
  Event begin_;
  int left_ = 0;  // steps to trace
};

}  // namespace metp
