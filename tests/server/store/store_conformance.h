#pragma once

// What every store must do. An implementation's test makes a StoreFactory and instantiates StoreConformance
// with it.

#include <gmock/gmock.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "server/store/store.h"
#include "tests/support/status_matchers.h"

namespace metp {

using StoreFactory = std::function<std::unique_ptr<Store>()>;

inline v1::JobRecord Record(const std::string& id, int64_t sequence, const std::string& reason = "") {
  v1::JobRecord record;
  record.set_sequence(sequence);
  record.set_request_id("request of " + id);
  record.mutable_status()->set_id(id);
  record.mutable_status()->set_reason(reason);
  return record;
}

inline StoreChange::Step Step(const std::string& job, int step, double loss, bool whole = true) {
  StoreChange::Step row{job, {}};
  row.step.mutable_point()->set_step(step);
  row.step.mutable_point()->set_loss(loss);
  row.step.set_reported(2);
  row.step.set_whole(whole);
  return row;
}

/// "1:0.5 2:0.25?" of a job's steps; ? marks one that is not whole.
inline std::string Curve(const StoredJob& job) {
  std::string text;
  for (const v1::StoredStep& step : job.steps) {
    text += (text.empty() ? "" : " ") + std::to_string(step.point().step()) + ":" +
            std::to_string(step.point().loss()).substr(0, 4) + (step.whole() ? "" : "?");
  }
  return text;
}

class StoreConformance : public ::testing::TestWithParam<StoreFactory> {
 protected:
  absl::Status Put(const v1::JobRecord& record) { return store_->Write({.jobs = {record}}); }
  std::unique_ptr<Store> store_ = GetParam()();
};

TEST_P(StoreConformance, BeginsEmpty) {
  const auto state = store_->Load();
  ASSERT_THAT(state, IsOk());
  EXPECT_THAT(state->jobs, ::testing::IsEmpty());
  EXPECT_THAT(state->workers, ::testing::IsEmpty());
  EXPECT_EQ(state->last_sequence, 0);
}

TEST_P(StoreConformance, GivesBackWhatWasPutBySequence) {
  ASSERT_THAT(Put(Record("b", 10)), IsOk());
  ASSERT_THAT(Put(Record("a", 2)), IsOk());
  ASSERT_THAT(Put(Record("c", 9, std::string("\xC3\xA4 \0 x", 6))), IsOk());
  const auto state = store_->Load();
  ASSERT_THAT(state->jobs, ::testing::SizeIs(3));
  EXPECT_EQ(state->jobs[0].record.SerializeAsString(), Record("a", 2).SerializeAsString());
  EXPECT_EQ(state->jobs[1].record.status().reason(), std::string("\xC3\xA4 \0 x", 6));
  EXPECT_EQ(state->jobs[2].record.status().id(), "b");
  EXPECT_EQ(state->last_sequence, 10);
}

TEST_P(StoreConformance, ReplacesARecordAndKeepsItsSteps) {
  ASSERT_THAT(store_->Write({.jobs = {Record("a", 1, "old")}, .steps = {Step("a", 1, 0.5)}}), IsOk());
  ASSERT_THAT(Put(Record("a", 1, "new")), IsOk());
  const auto state = store_->Load();
  ASSERT_THAT(state->jobs, ::testing::SizeIs(1));
  EXPECT_EQ(state->jobs[0].record.status().reason(), "new");
  EXPECT_EQ(Curve(state->jobs[0]), "1:0.50");
}

TEST_P(StoreConformance, NeverUsesANumberAgain) {
  ASSERT_THAT(Put(Record("a", 7)), IsOk());
  ASSERT_THAT(store_->Write({.deleted = {"a"}}), IsOk());
  ASSERT_THAT(store_->Write({.deleted = {"a"}}), IsOk());
  const auto state = store_->Load();
  EXPECT_THAT(state->jobs, ::testing::IsEmpty());
  EXPECT_EQ(state->last_sequence, 7);
}

TEST_P(StoreConformance, KeepsStepsInOrderReplacesAndForgetsThem) {
  ASSERT_THAT(store_->Write({.jobs = {Record("a", 1), Record("b", 2)},
                             .steps = {Step("a", 2, 0.25), Step("a", 1, 0.5), Step("b", 1, 0.75)}}),
              IsOk());
  ASSERT_THAT(store_->Write({.steps = {Step("a", 3, 0.125, false), Step("a", 2, 0.3), Step("a", 4, 0.1)}}),
              IsOk());
  auto state = store_->Load();
  EXPECT_EQ(Curve(state->jobs[0]), "1:0.50 2:0.30 3:0.12? 4:0.10");
  EXPECT_EQ(Curve(state->jobs[1]), "1:0.75");
  ASSERT_THAT(store_->Write({.forgotten = {{"a", 3, false}, {"none", 0, true}}}), IsOk());
  EXPECT_EQ(Curve(store_->Load()->jobs[0]), "1:0.50 2:0.30 3:0.12?");
  ASSERT_THAT(store_->Write({.forgotten = {{"a", 100, true}}, .steps = {Step("a", 3, 0.2, false)}}), IsOk());
  EXPECT_EQ(Curve(store_->Load()->jobs[0]), "1:0.50 2:0.30 3:0.20?");
  ASSERT_THAT(store_->Write({.deleted = {"a"}}), IsOk());
  ASSERT_THAT(Put(Record("a", 3)), IsOk());
  state = store_->Load();
  ASSERT_THAT(state->jobs, ::testing::SizeIs(2));
  EXPECT_EQ(Curve(state->jobs[1]), "");
}

TEST_P(StoreConformance, KeepsWorkersByName) {
  v1::WorkerHello one, two;
  one.set_name("cpu-1");
  two.set_name("cpu-0");
  one.set_address("first");
  ASSERT_THAT(store_->Write({.workers = {one, two}}), IsOk());
  one.set_address("second");
  ASSERT_THAT(store_->Write({.workers = {one}}), IsOk());
  auto state = store_->Load();
  ASSERT_THAT(state->workers, ::testing::SizeIs(2));
  EXPECT_EQ(state->workers[0].name(), "cpu-0");
  EXPECT_EQ(state->workers[1].address(), "second");
  ASSERT_THAT(store_->Write({.workers_gone = {"cpu-0", "cpu-7"}}), IsOk());
  EXPECT_THAT(store_->Load()->workers, ::testing::SizeIs(1));
}

inline v1::LogLine Line(int64_t offset, const std::string& text) {
  v1::LogLine line;
  line.set_offset(offset);
  line.set_text(text);
  return line;
}

TEST_P(StoreConformance, KeepsOutputByOffsetAndDropsItsBeginning) {
  ASSERT_THAT(store_->Write({.jobs = {Record("a", 1)}, .output = {{"a", 0, {Line(0, "x"), Line(1, "y")}}}}),
              IsOk());
  ASSERT_THAT(store_->Write({.output = {{"a", 1, {Line(2, "z")}}}}), IsOk());
  auto state = store_->Load();
  ASSERT_THAT(state->jobs[0].output, ::testing::SizeIs(2));
  EXPECT_EQ(state->jobs[0].output[0].offset(), 1);
  EXPECT_EQ(state->jobs[0].output[1].text(), "z");
  ASSERT_THAT(store_->Write({.deleted = {"a"}}), IsOk());
  ASSERT_THAT(Put(Record("a", 2)), IsOk());
  EXPECT_THAT(store_->Load()->jobs[0].output, ::testing::IsEmpty());
  EXPECT_THAT(store_->Write({.output = {{"b", 0, {Line(0, "x")}}}}),
              StatusIs(absl::StatusCode::kInvalidArgument, ::testing::HasSubstr("output of job 'b'")));
}

TEST_P(StoreConformance, KeepsWhatWasTakenOfWorkersAndWhoIsDrained) {
  ASSERT_THAT(
      store_->Write({.taken = {{"cpu-0", "i", 7}, {"cpu-1", "i", 8}}, .drains = {{"cpu-1", true, "old"}}}),
      IsOk());
  ASSERT_THAT(store_->Write({.taken = {{"cpu-0", "j", 2}}, .drains = {{"cpu-1", true, "new"}, {"cpu-2"}}}),
              IsOk());
  auto state = store_->Load();
  ASSERT_THAT(state->taken, ::testing::SizeIs(2));
  EXPECT_EQ(state->taken[0].incarnation, "j");
  EXPECT_EQ(state->taken[0].sequence, 2);
  ASSERT_THAT(state->drains, ::testing::SizeIs(2));
  EXPECT_EQ(state->drains[0].reason, "new");
  ASSERT_THAT(store_->Write({.workers_gone = {"cpu-0"}, .drains = {{"cpu-1", false}}}), IsOk());
  state = store_->Load();
  ASSERT_THAT(state->taken, ::testing::SizeIs(1));
  EXPECT_EQ(state->taken[0].worker, "cpu-1");
  ASSERT_THAT(state->drains, ::testing::SizeIs(1));
  EXPECT_EQ(state->drains[0].worker, "cpu-2");
}

TEST_P(StoreConformance, RefusesWholeWhatIsWrongInPart) {
  EXPECT_THAT(store_->Write({.jobs = {Record("a", 1), Record("", 2)}}),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(store_->Write({.jobs = {Record("a", 1)}, .steps = {Step("b", 1, 0.5)}}),
              StatusIs(absl::StatusCode::kInvalidArgument, ::testing::HasSubstr("'b'")));
  EXPECT_THAT(store_->Load()->jobs, ::testing::IsEmpty());
  EXPECT_THAT(Put(Record("a", 1)), IsOk());
}

}  // namespace metp
