#pragma once

// The learning rate of a step.

#include "metp/v1/job.pb.h"

namespace metp {

/// `step` counts from 1. Linear from learning_rate / warmup_steps up to learning_rate at step warmup_steps,
/// then constant, or a half cosine that reaches min_learning_rate at the last step. Warm-up may be longer
/// than the run.
double LearningRate(const v1::TrainSpec& train, int step);

}  // namespace metp
