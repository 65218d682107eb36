#include "worker/rank/rendezvous.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <future>
#include <thread>

#include "worker/rank/rendezvous_link.h"

namespace metp {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

TEST(LocalRendezvous, GetWaitsForThePut) {
  LocalRendezvous rendezvous;
  std::thread other([&] { EXPECT_TRUE(rendezvous.Put("key", "value").ok()); });
  EXPECT_EQ(*rendezvous.Get("key", seconds(60)), "value");
  other.join();
}

TEST(LocalRendezvous, GetNamesTheKeyNobodyPut) {
  LocalRendezvous rendezvous;
  const absl::Status status = rendezvous.Get("ring/0/1", milliseconds(5)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr("ring/0/1"));
}

TEST(LocalRendezvous, CloseWakesThoseWhoWaitAndKeepsWhatIsThere) {
  LocalRendezvous rendezvous;
  ASSERT_TRUE(rendezvous.Put("there", "1").ok());
  std::thread other([&] { rendezvous.Close(absl::CancelledError("attempt over")); });
  EXPECT_EQ(rendezvous.Get("missing", seconds(60)).status(), absl::CancelledError("attempt over"));
  other.join();
  rendezvous.Close(absl::InternalError("later"));
  EXPECT_EQ(rendezvous.Get("missing", seconds(60)).status(), absl::CancelledError("attempt over"));
  EXPECT_EQ(*rendezvous.Get("there", seconds(60)), "1");
}

TEST(LocalRendezvous, AKeyHoldsOneValueForEver) {
  LocalRendezvous rendezvous;
  EXPECT_TRUE(rendezvous.Put("key", "1").ok());
  EXPECT_TRUE(rendezvous.Put("key", "1").ok());
  EXPECT_EQ(rendezvous.Put("key", "2").code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(*rendezvous.Get("key", seconds(60)), "1");
}

TEST(RendezvousHub, AnswersOnceNowOrWhenTheKeyComes) {
  RendezvousHub hub;
  std::vector<std::string> replies;
  const auto reply = [&](const std::string& who) {
    return [&replies, who](const std::string& value) { replies.push_back(who + "=" + value); };
  };
  hub.Get("key", reply("early"));
  hub.Get("key", reply("also early"));
  hub.Get("other", reply("never"));
  EXPECT_TRUE(replies.empty());
  EXPECT_TRUE(hub.Put("key", "1").ok());
  hub.Get("key", reply("late"));
  EXPECT_TRUE(hub.Put("key", "1").ok());
  EXPECT_EQ(hub.Put("key", "2").code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(replies, (std::vector<std::string>{"early=1", "also early=1", "late=1"}));
}

TEST(RendezvousHub, AReplyMayAskAgain) {
  RendezvousHub hub;
  std::string got;
  hub.Get("a", [&](const std::string&) { hub.Get("b", [&](const std::string& value) { got = value; }); });
  EXPECT_TRUE(hub.Put("a", "1").ok());
  EXPECT_TRUE(hub.Put("b", "2").ok());
  EXPECT_EQ(got, "2");
}

/// A RankLink and the supervisor's end of it.
class LinkTest : public testing::Test {
 protected:
  LinkTest() {
    int fds[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    supervisor_ = std::make_unique<Channel>(fds[0]);
    link_ = std::make_unique<RankLink>(
        fds[1], [this](const absl::Status& status) { lost_.set_value(status); },
        [this](const v1::TraceOrder& order) { ordered_.set_value(order.steps()); });
  }
  std::unique_ptr<Channel> supervisor_;
  std::promise<absl::Status> lost_;
  std::promise<int> ordered_;
  std::unique_ptr<RankLink> link_;
};

TEST_F(LinkTest, HandsOutTheStartOrder) {
  std::thread other([&] {
    v1::ToRank message;
    message.mutable_start()->set_rank(2);
    EXPECT_TRUE(supervisor_->Send(message).ok());
  });
  const auto start = link_->AwaitStart(seconds(60));
  ASSERT_TRUE(start.ok()) << start.status();
  EXPECT_EQ(start->rank(), 2);
  other.join();
}

TEST_F(LinkTest, HandsOnATraceOrder) {
  v1::ToRank message;
  message.mutable_trace()->set_steps(3);
  ASSERT_TRUE(supervisor_->Send(message).ok());
  EXPECT_EQ(ordered_.get_future().get(), 3);
}

TEST_F(LinkTest, ServesRendezvousOverTheLink) {
  ChannelRendezvous rendezvous(*link_);
  ASSERT_TRUE(rendezvous.Put("mine", "1").ok());
  std::thread other([&] {
    v1::FromRank put, get;
    EXPECT_TRUE(*supervisor_->Receive(&put));
    EXPECT_EQ(put.put().key(), "mine");
    EXPECT_EQ(put.put().value(), "1");
    EXPECT_TRUE(*supervisor_->Receive(&get));
    EXPECT_EQ(get.get().key(), "theirs");
    v1::ToRank value;
    value.mutable_value()->set_key("theirs");
    value.mutable_value()->set_value("2");
    EXPECT_TRUE(supervisor_->Send(value).ok());
  });
  EXPECT_EQ(*rendezvous.Get("theirs", seconds(60)), "2");
  other.join();
  EXPECT_EQ(rendezvous.Get("nobody's", milliseconds(5)).status().code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(LinkTest, ASupervisorThatGoesEndsEveryWaitAndIsReportedOnce) {
  std::thread other([&] { supervisor_.reset(); });
  EXPECT_EQ(link_->AwaitStart(seconds(60)).status().code(), absl::StatusCode::kUnavailable);
  other.join();
  EXPECT_EQ(lost_.get_future().get().code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(link_->AwaitValue("key", seconds(60)).ok());
}

TEST_F(LinkTest, LeavingIsNotALoss) {
  link_.reset();
  v1::FromRank message;
  EXPECT_EQ(*supervisor_->Receive(&message), false);
  // The reading thread has ended without a call: a promise can be set only once.
  lost_.set_value(absl::OkStatus());
}

}  // namespace
}  // namespace metp
