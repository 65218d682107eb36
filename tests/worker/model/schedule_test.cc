#include "worker/model/schedule.h"

#include <gtest/gtest.h>

namespace metp {
namespace {

v1::TrainSpec Train(int steps, int warmup, v1::TrainSpec::Schedule schedule) {
  v1::TrainSpec train;
  train.set_steps(steps);
  train.set_warmup_steps(warmup);
  train.set_learning_rate(1.0);
  train.set_min_learning_rate(0.1);
  train.set_schedule(schedule);
  return train;
}

TEST(Schedule, WarmsUpLinearlyToThePeak) {
  const auto train = Train(10, 4, v1::TrainSpec::SCHEDULE_COSINE);
  EXPECT_DOUBLE_EQ(LearningRate(train, 1), 0.25);
  EXPECT_DOUBLE_EQ(LearningRate(train, 4), 1.0);
}

TEST(Schedule, CosineEndsAtTheMinimum) {
  const auto train = Train(10, 4, v1::TrainSpec::SCHEDULE_COSINE);
  EXPECT_DOUBLE_EQ(LearningRate(train, 7), 0.1 + 0.9 * 0.5);
  EXPECT_NEAR(LearningRate(train, 10), 0.1, 1e-12);
}

TEST(Schedule, ConstantStaysAtThePeak) {
  EXPECT_DOUBLE_EQ(LearningRate(Train(10, 0, v1::TrainSpec::SCHEDULE_CONSTANT), 1), 1.0);
  EXPECT_DOUBLE_EQ(LearningRate(Train(10, 2, v1::TrainSpec::SCHEDULE_CONSTANT), 10), 1.0);
}

TEST(Schedule, WarmUpMayBeLongerThanTheRun) {
  EXPECT_DOUBLE_EQ(LearningRate(Train(3, 10, v1::TrainSpec::SCHEDULE_COSINE), 3), 0.3);
}

}  // namespace
}  // namespace metp
