// What is particular to Gloo rings: making one, and the signal that must not kill the process. What they
// share with other rings is in conformance/.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <thread>

#include "tests/worker/comm/ring_kinds.h"
#include "worker/comm/gloo/sigpipe.h"
#include "worker/rank/rendezvous.h"

// Gloo loses 64 bytes when it cannot listen on an address; read by address sanitizer, a plain function
// otherwise.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() { return "leak:gloo::transport::tcp::CreateDeviceAttr"; }

namespace metp {
namespace {

using testing::HasSubstr;
using Code = absl::StatusCode;

TEST(GlooCommunicator, ConnectsItsRanksThroughARendezvous) {
  constexpr int kSize = 3;
  LocalRendezvous rendezvous;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kSize; ++rank) {
    threads.emplace_back([&, rank] {
      auto comm = MakeGlooCommunicator(rank, kSize, "127.0.0.1", rendezvous);
      ASSERT_TRUE(comm.ok()) << comm.status();
      EXPECT_EQ((*comm)->rank(), rank);
      EXPECT_EQ((*comm)->size(), kSize);
      std::vector<double> sum = {1.0 + rank};
      ASSERT_TRUE((*comm)->AllReduce(Row(sum)).ok());
      EXPECT_EQ(sum[0], 6.0);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(GlooCommunicator, OfOneRankNeedsNobody) {
  LocalRendezvous rendezvous;
  auto comm = MakeGlooCommunicator(0, 1, "127.0.0.1", rendezvous);
  ASSERT_TRUE(comm.ok()) << comm.status();
  EXPECT_TRUE((*comm)->Barrier().ok());
}

TEST(GlooCommunicator, RefusesAnAddressThatIsNotItsOwn) {
  LocalRendezvous rendezvous;
  const absl::Status status = MakeGlooCommunicator(0, 2, "203.0.113.1", rendezvous).status();
  EXPECT_EQ(status.code(), Code::kUnavailable) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("203.0.113.1"));
}

TEST(GlooCommunicator, RefusesARankOutsideTheRing) {
  LocalRendezvous rendezvous;
  EXPECT_EQ(MakeGlooCommunicator(2, 2, "127.0.0.1", rendezvous).status().code(), Code::kInvalidArgument);
}

TEST(GlooCommunicator, NamesTheNeighbourThatNeverCame) {
  LocalRendezvous rendezvous;
  const absl::Status status =
      MakeGlooCommunicator(0, 2, "127.0.0.1", rendezvous, {std::chrono::milliseconds(30)}).status();
  EXPECT_EQ(status.code(), Code::kDeadlineExceeded) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1"));
}

TEST(GlooCommunicator, NamesTheNeighbourWhoseAddressIsNone) {
  LocalRendezvous rendezvous;
  ASSERT_TRUE(rendezvous.Put("ring/1/0", "not an address").ok());
  const absl::Status status = MakeGlooCommunicator(0, 2, "127.0.0.1", rendezvous).status();
  EXPECT_EQ(status.code(), Code::kUnavailable) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1"));
}

TEST(SigpipeBlock, KeepsTheSignalFromItsThreadsAndLeavesNoneBehind) {
  {
    const SigpipeBlock block;
    std::thread([] { raise(SIGPIPE); }).join();  // ends the process if it gets through
    raise(SIGPIPE);
  }
  sigset_t pending, blocked;
  sigpending(&pending);
  pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
  EXPECT_FALSE(sigismember(&pending, SIGPIPE));
  EXPECT_FALSE(sigismember(&blocked, SIGPIPE));
}

}  // namespace
}  // namespace metp
