#include "worker/model/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace metp {

double LearningRate(const v1::TrainSpec& train, int step) {
  const double peak = train.learning_rate();
  const int warmup = train.warmup_steps();
  if (step <= warmup) return peak * step / warmup;
  if (train.schedule() != v1::TrainSpec::SCHEDULE_COSINE) return peak;
  const double left = std::max(1, train.steps() - warmup);
  const double done = std::min(1.0, (step - warmup) / left);
  const double low = train.min_learning_rate();
  return low + (peak - low) * 0.5 * (1 + std::cos(std::numbers::pi * done));
}

}  // namespace metp
