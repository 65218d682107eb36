// The small parts of the coordinator: rendezvous, output ring, change notices, causes, invariants.

#include <gmock/gmock.h>

#include "server/change_hub.h"
#include "server/invariants.h"
#include "server/log_ring.h"
#include "server/rank_end.h"
#include "server/rendezvous.h"
#include "tests/support/status_matchers.h"

namespace metp {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(RendezvousTable, AnswersNowOrWhenTheKeyComes) {
  RendezvousTable table;
  std::vector<RendezvousTable::Answer> answers;
  table.Get("a/1", 1, "key", answers);
  table.Get("a/1", 1, "key", answers);  // asked again after a broken session
  table.Get("a/1", 2, "key", answers);
  table.Get("b/1", 3, "key", answers);  // another attempt's key
  EXPECT_THAT(answers, IsEmpty());
  ASSERT_THAT(table.Put("a/1", "key", "value", answers), IsOk());
  ASSERT_THAT(answers, SizeIs(2));
  EXPECT_EQ(answers[0].rank, 1);
  EXPECT_EQ(answers[1].rank, 2);
  table.Get("a/1", 0, "key", answers);
  ASSERT_THAT(answers, SizeIs(3));
  EXPECT_EQ(answers[2].value, "value");
}

TEST(RendezvousTable, KeepsTheFirstValue) {
  RendezvousTable table;
  std::vector<RendezvousTable::Answer> answers;
  ASSERT_THAT(table.Put("a/1", "key", "value", answers), IsOk());
  EXPECT_THAT(table.Put("a/1", "key", "value", answers), IsOk());
  EXPECT_THAT(table.Put("a/1", "key", "other", answers), StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_THAT(table.Put("a/1", "large", std::string(70000, 'x'), answers),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("70000")));
  table.Erase("a/1");
  EXPECT_THAT(table.Put("a/1", "key", "other", answers), IsOk());
}

TEST(LogRing, KeepsTheLastLinesAndCountsTheRest) {
  LogRing ring(3, 1000);
  for (int i = 0; i < 5; ++i) ring.Append(i % 2, "line " + std::to_string(i));
  EXPECT_THAT(ring.ReadFrom(0, std::nullopt, 1000, true).lines, IsEmpty());  // not before they are stored
  ring.ClearChanges();
  const LogRing::Read all = ring.ReadFrom(0, std::nullopt, 1000, true);
  EXPECT_EQ(all.dropped, 2);
  ASSERT_THAT(all.lines, SizeIs(3));
  EXPECT_EQ(all.lines[0].offset(), 2);
  EXPECT_EQ(all.next, 5);
  const LogRing::Read one = ring.ReadFrom(2, 1, 1000, true);
  EXPECT_EQ(one.dropped, 0);
  ASSERT_THAT(one.lines, SizeIs(1));
  EXPECT_EQ(one.lines[0].text(), "line 3");
  EXPECT_EQ(one.next, 5);
  EXPECT_THAT(ring.ReadFrom(5, std::nullopt, 1000, true).lines, IsEmpty());
}

TEST(LogRing, StaysWithinItsBytesAndReadsInPieces) {
  LogRing ring(1000, 100);
  for (int i = 0; i < 20; ++i) ring.Append(0, std::string(10, 'x'));
  ring.ClearChanges();
  EXPECT_EQ(ring.ReadFrom(0, std::nullopt, 1 << 20, true).lines.size(), 10u);
  int64_t at = 10;
  int lines = 0;
  while (at < ring.end()) {
    const LogRing::Read read = ring.ReadFrom(at, std::nullopt, 40, true);
    EXPECT_LE(read.lines.size(), 2u);
    lines += static_cast<int>(read.lines.size());
    at = read.next;
  }
  EXPECT_EQ(lines, 10);
}

TEST(ChangeHub, TellsThoseWhoWatchTheKeyWhileTheyDo) {
  ChangeHub hub;
  int a = 0, b = 0;
  ChangeHub::Subscription first = hub.Subscribe("a", [&] { ++a; });
  ChangeHub::Subscription second = hub.Subscribe("b", [&] { ++b; });
  hub.Notify("a");
  ChangeHub::Subscription moved = std::move(first);
  hub.Notify("a");
  moved.Reset();
  hub.Notify("a");
  hub.Notify("nobody");
  EXPECT_EQ(a, 2);
  EXPECT_EQ(b, 0);
  EXPECT_FALSE(hub.closed());
  hub.Close();  // everybody hears of that
  EXPECT_TRUE(hub.closed());
  EXPECT_EQ(a, 2);
  EXPECT_EQ(b, 1);
}

v1::RankEnded Ended(std::optional<absl::StatusCode> result, bool clean, bool stopped) {
  v1::RankEnded ended;
  if (result.has_value()) {
    ended.mutable_result()->set_code(static_cast<int>(*result));
    ended.mutable_result()->set_message("because");
  }
  ended.set_clean(clean);
  ended.set_stopped(stopped);
  ended.set_how("killed by signal 9 (SIGKILL)");
  return ended;
}

TEST(RankEnd, TellsCausesFromConsequences) {
  const auto kind = [](const v1::RankEnded& ended) { return Explain("cpu-3", 2, ended).kind; };
  EXPECT_EQ(kind(Ended(absl::StatusCode::kOk, true, false)), EndKind::kDone);
  EXPECT_EQ(kind(Ended(absl::StatusCode::kOk, true, true)), EndKind::kDone);
  EXPECT_EQ(kind(Ended(absl::StatusCode::kOk, false, false)), EndKind::kDeath);
  EXPECT_EQ(kind(Ended(absl::StatusCode::kUnavailable, false, false)), EndKind::kConsequence);
  EXPECT_EQ(kind(Ended(absl::StatusCode::kUnavailable, false, true)), EndKind::kStopped);
  EXPECT_EQ(kind(Ended(absl::StatusCode::kDeadlineExceeded, false, false)), EndKind::kConsequence);
  EXPECT_EQ(kind(Ended(absl::StatusCode::kResourceExhausted, false, true)), EndKind::kError);
  EXPECT_EQ(kind(Ended(std::nullopt, false, false)), EndKind::kDeath);
  EXPECT_EQ(kind(Ended(std::nullopt, true, false)), EndKind::kDeath);
  EXPECT_EQ(kind(Ended(std::nullopt, false, true)), EndKind::kStopped);
}

TEST(RankEnd, SaysWhoAndHow) {
  EXPECT_EQ(Explain("cpu-3", 2, Ended(std::nullopt, false, false)).message,
            "rank 2 on worker cpu-3: killed by signal 9 (SIGKILL)");
  EXPECT_EQ(Explain("cpu-3", 2, Ended(absl::StatusCode::kResourceExhausted, false, false)).message,
            "rank 2 on worker cpu-3: RESOURCE_EXHAUSTED: because");
}

v1::JobRecord Running() {
  v1::JobRecord record;
  record.set_sequence(1);
  record.set_request_id("r");
  record.set_attempts(1);
  v1::JobStatus& status = *record.mutable_status();
  status.set_id("a-1");
  status.set_attempt("a-1/1");
  status.set_state(v1::JobStatus::RUNNING);
  status.mutable_plan()->set_degree(1);
  v1::RankStatus& rank = *status.add_ranks();
  rank.set_worker("w");
  rank.set_state(v1::RankStatus::STARTED);
  return record;
}

TEST(Invariants, FindWhatIsBroken) {
  EXPECT_THAT(Invariants().Check({Running()}), IsOk());
  const auto broken = [](const std::function<void(v1::JobRecord&)>& change) {
    v1::JobRecord record = Running();
    change(record);
    return Invariants().Check({record});
  };
  const auto internal = StatusIs(absl::StatusCode::kInternal);
  EXPECT_THAT(Invariants().Check({Running(), Running()}), internal);
  EXPECT_THAT(broken([](auto& r) { r.mutable_status()->set_state(v1::JobStatus::QUEUED); }), internal);
  EXPECT_THAT(broken([](auto& r) { r.mutable_status()->set_state(v1::JobStatus::FAILED); }), internal);
  EXPECT_THAT(broken([](auto& r) { r.mutable_status()->mutable_plan()->set_degree(2); }), internal);
  EXPECT_THAT(broken([](auto& r) { r.mutable_status()->mutable_ranks(0)->set_worker(""); }), internal);
  EXPECT_THAT(broken([](auto& r) { r.mutable_status()->mutable_ranks(0)->set_state(v1::RankStatus::GONE); }),
              internal);
  EXPECT_THAT(
      broken([](auto& r) { r.mutable_status()->mutable_ranks(0)->set_state(v1::RankStatus::ASSIGNED); }),
      internal);
  EXPECT_THAT(broken([](auto& r) { r.mutable_status()->set_attempt("a-1/2"); }), internal);
  EXPECT_THAT(broken([](auto& r) { r.mutable_status()->set_step(1); }), internal);

  v1::JobRecord other = Running();
  other.set_sequence(2);
  other.set_request_id("s");
  other.mutable_status()->set_id("b-2");
  other.mutable_status()->set_attempt("b-2/1");
  EXPECT_THAT(Invariants().Check({Running(), other}),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("holds two ranks")));
}

TEST(Invariants, FindAChangedEnd) {
  Invariants invariants;
  v1::JobRecord record = Running();
  record.mutable_status()->mutable_ranks(0)->set_state(v1::RankStatus::GONE);
  record.mutable_status()->set_state(v1::JobStatus::FAILED);
  record.mutable_status()->mutable_finished()->set_seconds(1);
  ASSERT_THAT(invariants.Check({record}), IsOk());
  record.mutable_status()->set_state(v1::JobStatus::SUCCEEDED);
  EXPECT_THAT(invariants.Check({record}),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("had ended as FAILED")));
}

}  // namespace
}  // namespace metp
