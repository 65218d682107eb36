#pragma once

// How long a run goes on, and the learning rate of each of its steps.

#include <algorithm>

#include "metp/v1/job.pb.h"

namespace metp {

/// The step after which a run ends.
inline int LastStep(const v1::TrainSpec& train) {
  return train.has_stop_after() ? std::min(train.steps(), train.stop_after()) : train.steps();
}

/// `step` counts from 1. Linear from learning_rate / warmup_steps up to learning_rate at step warmup_steps,
/// then constant, or a half cosine that reaches min_learning_rate at the last step. Warm-up may be longer
/// than the run.
double LearningRate(const v1::TrainSpec& train, int step);

}  // namespace metp
