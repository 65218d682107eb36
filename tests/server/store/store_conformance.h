#pragma once

// What every store must do. An implementation's test makes a StoreFactory and instantiates StoreConformance
// with it.

#include <gmock/gmock.h>

#include <functional>
#include <memory>

#include "server/store/store.h"
#include "tests/support/status_matchers.h"

namespace metp {

using StoreFactory = std::function<std::unique_ptr<Store>()>;

class StoreConformance : public ::testing::TestWithParam<StoreFactory> {
 protected:
  static v1::JobRecord Record(const std::string& id, int64_t sequence, const std::string& reason = "") {
    v1::JobRecord record;
    record.set_sequence(sequence);
    record.set_request_id("request of " + id);
    record.mutable_status()->set_id(id);
    record.mutable_status()->set_reason(reason);
    return record;
  }
  std::unique_ptr<Store> store_ = GetParam()();
};

TEST_P(StoreConformance, BeginsEmpty) {
  EXPECT_THAT(*store_->Load(), ::testing::IsEmpty());
  EXPECT_EQ(*store_->LastSequence(), 0);
}

TEST_P(StoreConformance, GivesBackWhatWasPutBySequence) {
  ASSERT_THAT(store_->Put(Record("b", 10)), IsOk());
  ASSERT_THAT(store_->Put(Record("a", 2)), IsOk());
  ASSERT_THAT(store_->Put(Record("c", 9, std::string("\xC3\xA4 \0 x", 6))), IsOk());
  const auto records = store_->Load();
  ASSERT_THAT(*records, ::testing::SizeIs(3));
  EXPECT_EQ((*records)[0].SerializeAsString(), Record("a", 2).SerializeAsString());
  EXPECT_EQ((*records)[1].status().reason(), std::string("\xC3\xA4 \0 x", 6));
  EXPECT_EQ((*records)[2].status().id(), "b");
  EXPECT_EQ(*store_->LastSequence(), 10);
}

TEST_P(StoreConformance, ReplacesARecord) {
  ASSERT_THAT(store_->Put(Record("a", 1, "old")), IsOk());
  ASSERT_THAT(store_->Put(Record("a", 1, "new")), IsOk());
  const auto records = store_->Load();
  ASSERT_THAT(*records, ::testing::SizeIs(1));
  EXPECT_EQ((*records)[0].status().reason(), "new");
}

TEST_P(StoreConformance, NeverUsesANumberAgain) {
  ASSERT_THAT(store_->Put(Record("a", 7)), IsOk());
  ASSERT_THAT(store_->Delete("a"), IsOk());
  ASSERT_THAT(store_->Delete("a"), IsOk());
  EXPECT_THAT(*store_->Load(), ::testing::IsEmpty());
  EXPECT_EQ(*store_->LastSequence(), 7);
}

TEST_P(StoreConformance, RefusesARecordWithoutAnId) {
  EXPECT_THAT(store_->Put(Record("", 1)), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(*store_->Load(), ::testing::IsEmpty());
}

}  // namespace metp
