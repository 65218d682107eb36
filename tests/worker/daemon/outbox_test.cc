#include "worker/daemon/outbox.h"

#include <gmock/gmock.h>

namespace metp {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

v1::WorkerEvent Step(int step) {
  v1::WorkerEvent event;
  event.set_attempt("a/1");
  event.mutable_step()->set_step(step);
  return event;
}
v1::WorkerEvent Ended(int rank) {
  v1::WorkerEvent event;
  event.set_attempt("a/1");
  event.set_rank(rank);
  event.mutable_ended()->set_how("exited");
  return event;
}
std::vector<int64_t> Sequences(const v1::WorkerEvents& batch) {
  std::vector<int64_t> sequences;
  for (const v1::WorkerEvent& event : batch.events()) sequences.push_back(event.sequence());
  return sequences;
}

TEST(Outbox, NumbersEventsAndGivesEachOnce) {
  Outbox outbox(1 << 20);
  outbox.Push(Step(1));
  outbox.Push(Step(2));
  EXPECT_THAT(Sequences(outbox.Next(1 << 20)), ElementsAre(1, 2));
  EXPECT_THAT(Sequences(outbox.Next(1 << 20)), IsEmpty());
  outbox.Push(Step(3));
  EXPECT_THAT(Sequences(outbox.Next(1 << 20)), ElementsAre(3));
  EXPECT_FALSE(outbox.empty());
}

TEST(Outbox, KeepsWhatIsNotAcknowledgedForTheNextSession) {
  Outbox outbox(1 << 20);
  for (int i = 1; i <= 4; ++i) outbox.Push(Step(i));
  outbox.Next(1 << 20);
  outbox.Acknowledge(1);
  outbox.Rewind(2);
  EXPECT_THAT(Sequences(outbox.Next(1 << 20)), ElementsAre(3, 4));
  outbox.Acknowledge(4);
  EXPECT_TRUE(outbox.empty());
}

TEST(Outbox, GivesBatchesOfTheAskedSizeAndOneEventAtLeast) {
  Outbox outbox(1 << 20);
  for (int i = 1; i <= 3; ++i) outbox.Push(Step(i));
  for (int i = 1; i <= 3; ++i) EXPECT_THAT(Sequences(outbox.Next(1)), ElementsAre(i));
}

TEST(Outbox, GathersLinesOfARankThatWereNotSent) {
  Outbox outbox(1 << 20);
  outbox.PushLine("a/1", 0, "one");
  outbox.PushLine("a/1", 0, "two");
  outbox.PushLine("a/1", 1, "other");
  const v1::WorkerEvents batch = outbox.Next(1 << 20);
  ASSERT_THAT(batch.events(), SizeIs(2));
  EXPECT_THAT(batch.events(0).output().lines(), ElementsAre("one", "two"));
  outbox.PushLine("a/1", 1, "later");
  EXPECT_THAT(outbox.Next(1 << 20).events(0).output().lines(), ElementsAre("later"));
}

TEST(Outbox, DropsTheOldestStepsAndLinesButNeverAnEnd) {
  Outbox outbox(4000);
  outbox.Push(Ended(7));
  for (int i = 1; i <= 1000; ++i) outbox.Push(Step(i));
  const v1::WorkerEvents batch = outbox.Next(1 << 20);
  ASSERT_GT(batch.events_size(), 2);
  EXPECT_LT(batch.events_size(), 500);
  EXPECT_TRUE(batch.events(0).has_ended());
  EXPECT_GT(batch.events(1).step().step(), 500);
  EXPECT_EQ(batch.events(batch.events_size() - 1).step().step(), 1000);
}

TEST(Outbox, DropsTimelinesBeforeAnythingElse) {
  Outbox outbox(4000);
  outbox.Push(Step(1));
  for (int i = 0; i < 3; ++i) {
    v1::WorkerEvent timeline;
    timeline.mutable_trace()->add_spans()->set_name(std::string(900, 'x'));
    outbox.Push(timeline);
  }
  outbox.PushLine("a/1", 0, std::string(2000, 'y'));
  const v1::WorkerEvents batch = outbox.Next(1 << 20);
  ASSERT_THAT(batch.events(), SizeIs(3));
  EXPECT_TRUE(batch.events(0).has_step());
  EXPECT_THAT(batch.events(1).output().lines(), ElementsAre(HasSubstr("timeline parts dropped: 3;")));
  EXPECT_THAT(batch.events(2).output().lines(), SizeIs(1));
}

TEST(Outbox, SaysOnceToEachRankHowManyOfItsTimelinesItDropped) {
  Outbox outbox(4000);
  const auto trace = [&](int rank) {
    v1::WorkerEvent timeline;
    timeline.set_attempt("a/1");
    timeline.set_rank(rank);
    timeline.mutable_trace()->add_spans()->set_name(std::string(900, 'x'));
    outbox.Push(timeline);
  };
  trace(0);
  EXPECT_TRUE(outbox.Next(1 << 20).events(0).has_trace());  // the coordinator may have it
  trace(0);
  trace(1);
  outbox.Push(Ended(1));
  for (int i = 0; i < 20; ++i) trace(0);  // again and again too many
  for (int i = 0; i < 5; ++i) outbox.PushLine("a/1", 0, std::string(500, 'y'));
  v1::WorkerEvents batch = outbox.Next(1 << 20);
  int notes = 0, of_rank_0 = 0, end = 0;
  for (int i = 0; i < batch.events_size(); ++i) {
    const v1::WorkerEvent& event = batch.events(i);
    EXPECT_FALSE(event.has_trace());
    if (event.has_ended()) end = i;
    if (!event.has_output()) continue;
    const std::string& line = event.output().lines(0);
    if (line.find("timeline parts dropped") == std::string::npos) continue;
    ++notes;
    if (event.rank() == 1) {
      EXPECT_THAT(line, HasSubstr("dropped: 1;"));
      EXPECT_EQ(end, 0);  // what comes after the end is of a rank that is over
    } else {
      ++of_rank_0;
      EXPECT_THAT(line, HasSubstr("dropped: 21;"));
    }
  }
  EXPECT_EQ(notes, 2);
  EXPECT_EQ(of_rank_0, 1);
  EXPECT_GT(end, 0);
  outbox.Rewind(0);  // it did not
  batch = outbox.Next(1 << 20);
  EXPECT_EQ(batch.events(0).sequence(), 1);
  EXPECT_THAT(batch.events(0).output().lines(), ElementsAre(HasSubstr("dropped: 1;")));
}

TEST(Outbox, CountsTheLinesThatItDropped) {
  Outbox outbox(4000);
  constexpr int kLines = 1000;
  for (int i = 0; i < kLines; ++i) {
    outbox.PushLine("a/1", i % 2, std::string(50, 'x'));  // ranks alternate: one event each
  }
  int64_t kept = 0, dropped = 0;
  const v1::WorkerEvents batch = outbox.Next(1 << 20);
  for (const v1::WorkerEvent& event : batch.events()) {
    kept += event.output().lines_size();
    dropped += event.output().dropped();
  }
  EXPECT_LT(kept, 100);
  EXPECT_EQ(kept + dropped, kLines);
}

TEST(Outbox, NamesRanksWhoseEndIsNotAcknowledged) {
  Outbox outbox(1 << 20);
  outbox.Push(Ended(3));
  outbox.Next(1 << 20);
  ASSERT_THAT(outbox.Ended(), SizeIs(1));
  EXPECT_EQ(outbox.Ended()[0].rank(), 3);
  outbox.Acknowledge(1);
  EXPECT_THAT(outbox.Ended(), IsEmpty());
}

TEST(Outbox, TellsItsListener) {
  Outbox outbox(1 << 20);
  int told = 0;
  outbox.SetListener([&] { ++told; });
  outbox.Push(Step(1));
  outbox.PushLine("a/1", 0, "x");
  EXPECT_EQ(told, 2);
}

}  // namespace
}  // namespace metp
