#include "worker/rank/channel.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>
#include <vector>

#include "metp/v1/rank.pb.h"

namespace metp {
namespace {

v1::FromRank Message(const std::string& text) {
  v1::FromRank message;
  message.set_started(text);
  return message;
}

class ChannelPair {
 public:
  ChannelPair() {
    int fds[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    raw = fds[1];
    left = std::make_unique<Channel>(fds[0]);
    right = std::make_unique<Channel>(fds[1]);
  }
  std::unique_ptr<Channel> left, right;
  int raw;  // right's descriptor
};

TEST(Channel, DeliversWholeMessagesInOrder) {
  ChannelPair pair;
  std::thread sender([&] {
    for (int i = 0; i < 100; ++i)
      EXPECT_TRUE(pair.left->Send(Message(std::string(i * 1000, 'a' + i % 26))).ok());
  });
  for (int i = 0; i < 100; ++i) {
    v1::FromRank message;
    const auto received = pair.right->Receive(&message);
    ASSERT_TRUE(received.ok() && *received) << received.status();
    EXPECT_EQ(message.started(), std::string(i * 1000, 'a' + i % 26));
  }
  sender.join();
}

TEST(Channel, KeepsMessagesOfManySendersWhole) {
  constexpr int kThreads = 4, kMessages = 50;
  ChannelPair pair;
  std::vector<std::thread> senders;
  for (int t = 0; t < kThreads; ++t) {
    senders.emplace_back([&, t] {
      for (int i = 0; i < kMessages; ++i)
        EXPECT_TRUE(pair.left->Send(Message(std::string(50'000, 'a' + t))).ok());
    });
  }
  std::vector<int> seen(kThreads);
  for (int i = 0; i < kThreads * kMessages; ++i) {
    v1::FromRank message;
    const auto received = pair.right->Receive(&message);
    ASSERT_TRUE(received.ok() && *received) << received.status();
    EXPECT_EQ(message.started(), std::string(50'000, message.started()[0]));
    ++seen[message.started()[0] - 'a'];
  }
  for (std::thread& sender : senders) sender.join();
  EXPECT_EQ(seen, std::vector<int>(kThreads, kMessages));
}

TEST(Channel, TellsACleanEndFromABrokenOne) {
  {
    ChannelPair pair;
    ASSERT_TRUE(pair.left->Send(Message("last")).ok());
    pair.left.reset();
    v1::FromRank message;
    EXPECT_EQ(*pair.right->Receive(&message), true);
    EXPECT_EQ(*pair.right->Receive(&message), false);
    EXPECT_EQ(pair.right->Send(message).code(), absl::StatusCode::kUnavailable);
  }
  ChannelPair pair;
  const std::string frame = *EncodeFrame(Message("cut short"));
  ASSERT_EQ(write(pair.raw, frame.data(), frame.size() - 1), static_cast<ssize_t>(frame.size() - 1));
  pair.right.reset();
  v1::FromRank message;
  EXPECT_EQ(pair.left->Receive(&message).status().code(), absl::StatusCode::kDataLoss);
}

TEST(Channel, RefusesWhatIsNoMessage) {
  {
    ChannelPair pair;
    ASSERT_EQ(write(pair.raw, "\x02\0\0\0\xff\xff", 6), 6);
    v1::FromRank message;
    EXPECT_EQ(pair.left->Receive(&message).status().code(), absl::StatusCode::kDataLoss);
  }
  ChannelPair pair;
  ASSERT_EQ(write(pair.raw, "\x01\0\0\x04", 4), 4);  // 64 MiB and one byte
  v1::FromRank message;
  EXPECT_EQ(pair.left->Receive(&message).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Channel, RefusesToSendWhatTheOtherSideWouldRefuse) {
  ChannelPair pair;
  EXPECT_EQ(pair.left->Send(Message(std::string(kMaxFrameBytes, 'x'))).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(Channel, ShutdownEndsAReceiveThatWaits) {
  ChannelPair pair;
  std::thread other([&] { pair.left->Shutdown(); });
  v1::FromRank message;
  EXPECT_EQ(*pair.left->Receive(&message), false);
  EXPECT_EQ(*pair.right->Receive(&message), false);
  other.join();
}

TEST(FrameDecoder, TakesTheStreamByteByByte) {
  const std::string stream =
      *EncodeFrame(Message("one")) + *EncodeFrame(v1::FromRank()) + *EncodeFrame(Message("three"));
  FrameDecoder decoder;
  std::vector<std::string> frames;
  for (char byte : stream) {
    decoder.Append({&byte, 1});
    while (true) {
      const auto frame = decoder.Next();
      ASSERT_TRUE(frame.ok());
      if (!frame->has_value()) break;
      frames.push_back(**frame);
    }
  }
  EXPECT_EQ(frames, (std::vector<std::string>{Message("one").SerializeAsString(), "",
                                              Message("three").SerializeAsString()}));
  EXPECT_TRUE(decoder.empty());
}

}  // namespace
}  // namespace metp
