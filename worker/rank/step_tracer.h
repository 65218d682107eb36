#pragma once

// The timelines of a rank's steps, on order: cuts them into parts, with times as Unix times, for whoever watches
// over the rank. Costs a look at one number a step while none are ordered.

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "metp/v1/report.pb.h"
#include "worker/rank/trainer.h"

namespace metp {

// Of one part, whichever is reached first: well under the 1 MiB of a message.
inline constexpr int kSpansInPart = 4000;
inline constexpr size_t kBytesInPart = 512 << 10;

/// How many steps are to be traced, and kMoreTracedSteps beyond these; 0: nothing new; kStopTracing: no further
/// step. Set from any thread, taken by the compute thread at its next step.
using TraceOrders = std::atomic<int>;
inline constexpr int kStopTracing = -1;

/// The spans of one step, sent a part as soon as it is full.
class TraceParts {
 public:
  using Send = std::function<void(const v1::TracePart&)>;
  /// `send` must outlive it.
  TraceParts(int rank, int step, const Send& send);
  void Add(std::string_view track, std::string name, double start, double seconds);
  /// Sends the last part.
  void End();

 private:
  const Send& send_;
  v1::TracePart part_;
  size_t bytes_ = 0;  // of its spans
};

/// Belongs to the rank's compute thread.
class StepTracer {
 public:
  using Send = TraceParts::Send;
  using UnixClock = std::function<double()>;  // seconds
  /// `orders` may be null: then nothing is ever traced. All must outlive the tracer.
  StepTracer(Trainer& trainer, Backend& backend, TraceOrders* orders, Send send, UnixClock now = UnixTime)
      : trainer_(trainer), backend_(backend), orders_(orders), send_(std::move(send)), now_(std::move(now)) {}
  ~StepTracer();
  StepTracer(const StepTracer&) = delete;
  StepTracer& operator=(const StepTracer&) = delete;

  void BeforeStep();
  /// `report`: as the trainer gave it.
  void AfterStep(const v1::StepReport& report);

 private:
  static double UnixTime();

  Trainer& trainer_;
  Backend& backend_;
  TraceOrders* const orders_;
  const Send send_;
  const UnixClock now_;
  Timeline timeline_;
  Event begin_;
  int left_ = 0;  // steps to trace
  // Unix time of the backend's clock at 0. Taken once for steps in a row, so that they cannot shift against each
  // other.
  std::optional<double> origin_;
};

}  // namespace metp
