#include "worker/rank/process.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <csignal>

#include "tests/worker/rank/observed_rank.h"
#include "worker/rank/descriptor.h"
#include "worker/rank/rendezvous.h"

namespace metp {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

RankCommand Fake(std::vector<std::string> arguments) {
  return {METP_BINARY_DIR "/fake_rank", std::move(arguments), {}};
}

v1::ToRank ValueMessage(const std::string& key, const std::string& value) {
  v1::ToRank message;
  message.mutable_value()->set_key(key);
  message.mutable_value()->set_value(value);
  return message;
}

TEST(RankProcess, CarriesMessagesBothWays) {
  ObservedRank rank(Fake({"echo"}));
  const std::string big(3 << 20, 'x');
  ASSERT_TRUE(rank.process().Send(ValueMessage("a", "1")).ok());
  ASSERT_TRUE(rank.process().Send(ValueMessage("b", big)).ok());
  EXPECT_EQ(rank.AwaitMessage(0).put().value(), "1");
  EXPECT_EQ(rank.AwaitMessage(1).put().value(), big);
}

TEST(RankProcess, TellsTheExitCode) {
  ObservedRank rank(Fake({"exit", "3"}));
  const RankExit exit = rank.End();
  EXPECT_EQ(exit.code, 3);
  EXPECT_EQ(exit.signal, 0);
  EXPECT_FALSE(exit.clean());
  EXPECT_EQ(exit.Describe(), "exited with code 3");
  EXPECT_TRUE(ObservedRank(Fake({"exit", "0"})).End().clean());
}

TEST(RankProcess, TellsTheSignalByNumberAndName) {
  EXPECT_EQ(ObservedRank(Fake({"abort"})).End().Describe(), "killed by signal 6 (SIGABRT)");
  ObservedRank rank(Fake({"hang"}));
  EXPECT_EQ(rank.AwaitStarted(), "ready");
  rank.process().Kill();
  const RankExit exit = rank.End();
  EXPECT_EQ(exit.signal, SIGKILL);
  EXPECT_EQ(exit.Describe(), "killed by signal 9 (SIGKILL)");
}

TEST(RankProcess, TellsTheMostMemoryTheProcessHad) {
  constexpr int64_t kBytes = 200 << 20;
  ObservedRank rank(Fake({"memory", std::to_string(kBytes)}));
  const RankExit exit = rank.End();
  EXPECT_TRUE(exit.clean()) << exit.Describe();
  EXPECT_GE(exit.max_rss_bytes, kBytes);
}

TEST(RankProcess, DeliversLinesOfBothOutputsAndTheLastWithoutANewline) {
  ObservedRank rank(Fake({"print", "one\n\nthree\n"}));
  rank.End();
  EXPECT_THAT(rank.lines(), ElementsAre("one", "", "three", "and to stderr", "no newline"));
}

TEST(RankProcess, CutsEndlessLines) {
  ObservedRank rank(Fake({"print", std::string(50'000, 'y') + "\n"}));
  rank.End();
  std::string joined;
  for (const std::string& line : rank.lines()) {
    EXPECT_LE(line.size(), 16u << 10);
    joined += line;
  }
  EXPECT_THAT(joined, HasSubstr(std::string(50'000, 'y')));
}

TEST(RankProcess, DeliversEverythingBeforeTheExit) {
  constexpr int kLines = 20'000;
  ObservedRank rank(Fake({"flood", std::to_string(kLines)}));
  EXPECT_TRUE(rank.End().clean());
  const std::vector<std::string> lines = rank.lines(), messages = rank.started();
  ASSERT_EQ(lines.size(), static_cast<size_t>(kLines));
  ASSERT_EQ(messages.size(), static_cast<size_t>(kLines));
  for (int i = 0; i < kLines; ++i) {
    ASSERT_EQ(lines[i], "line " + std::to_string(i));
    ASSERT_EQ(messages[i], std::to_string(i));
  }
}

TEST(RankProcess, TerminateIsARequestAndKillIsNot) {
  ObservedRank rank(Fake({"ignore_sigterm"}));
  EXPECT_EQ(rank.AwaitStarted(), "ready");
  rank.process().Terminate();
  EXPECT_EQ(rank.AwaitLine(), "not now");
  rank.process().Kill();
  EXPECT_EQ(rank.End().signal, SIGKILL);

  ObservedRank polite(Fake({"hang"}));
  EXPECT_EQ(polite.AwaitStarted(), "ready");
  polite.process().Terminate();
  EXPECT_EQ(polite.End().Describe(), "killed by signal 15 (SIGTERM)");
}

TEST(RankProcess, ItsDestructorKillsAndWaits) {
  Descriptor watch;
  {
    ObservedRank rank(Fake({"ignore_sigterm"}));
    EXPECT_EQ(rank.AwaitStarted(), "ready");
    watch = OpenPidfd(rank.process().pid());
    ASSERT_TRUE(watch.open());
  }
  pollfd dead = {watch.get(), POLLIN, 0};
  EXPECT_EQ(poll(&dead, 1, 0), 1) << "still running";
}

TEST(RankProcess, OutlivesItsSocketWithoutSpinningOrLosingOutput) {
  ObservedRank rank(Fake({"close_socket"}));
  EXPECT_EQ(rank.AwaitLine(), "closed");
  absl::Status status;
  // The supervisor's thread has seen the end when a Send says so.
  while (status.ok()) status = rank.process().Send(ValueMessage("a", std::string(1 << 20, 'z')));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  rank.process().Kill();
  EXPECT_EQ(rank.End().signal, SIGKILL);
}

TEST(RankProcess, SendToARankThatDoesNotReadNeverBlocksAndIsBounded) {
  ObservedRank rank(Fake({"hang"}));
  EXPECT_EQ(rank.AwaitStarted(), "ready");
  absl::Status status;
  int sent = 0;
  for (; status.ok() && sent < 100; ++sent)
    status = rank.process().Send(ValueMessage("a", std::string(4 << 20, 'z')));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_GE(sent, 16);
}

TEST(RankProcess, KillsARankThatBreaksTheProtocolAndSaysSo) {
  const RankExit exit = ObservedRank(Fake({"garbage"})).End();
  EXPECT_EQ(exit.signal, SIGKILL);
  EXPECT_THAT(exit.Describe(), HasSubstr("broke the protocol"));
  EXPECT_THAT(exit.Describe(), HasSubstr("4294967295"));
}

TEST(RankProcess, AGrandchildThatKeepsThePipesOpenDoesNotHideTheExit) {
  ObservedRank rank(Fake({"grandchild"}));
  EXPECT_TRUE(rank.End().clean());
  const pid_t grandchild = std::stoi(rank.AwaitStarted());
  ASSERT_GT(grandchild, 1);
  EXPECT_EQ(kill(grandchild, SIGKILL), 0) << "it was to outlive its parent";
}

TEST(RankProcess, GivesTheChildItsOwnDescriptorsAndACleanSlateOfSignals) {
  // What the supervisor does with its own: a descriptor that is inherited, a blocked and an ignored signal.
  const Descriptor inherited(open("/dev/null", O_RDONLY));
  ASSERT_EQ(fcntl(inherited.get(), F_GETFD), 0);
  sigset_t set, before;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &set, &before);
  const auto handler = std::signal(SIGPIPE, SIG_IGN);
  RankCommand command = Fake({"inspect"});
  command.environment = {{"FAKE_RANK", "seen"}};
  ObservedRank rank(command);
  EXPECT_TRUE(rank.End().clean());
  std::signal(SIGPIPE, handler);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  EXPECT_THAT(rank.started(), ElementsAre("0 1 2 3 ", "", "1", "seen"));
}

TEST(RankProcess, SaysWhenTheProgramCannotBeStarted) {
  EXPECT_EQ(RankProcess::Start({"/no/such/program", {}, {}}, {}).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(RankProcess::Start({METP_SOURCE_DIR "/CMakeLists.txt", {}, {}}, {}).status().code(),
            absl::StatusCode::kPermissionDenied);
}

TEST(RankProcess, ManyAtOnceKeepTheirDescriptorsApart) {
  // With another rank's descriptors in its hands, a rank would hide the other's end.
  std::vector<std::unique_ptr<ObservedRank>> ranks;
  for (int i = 0; i < 8; ++i) ranks.push_back(std::make_unique<ObservedRank>(Fake({"inspect"})));
  for (auto& rank : ranks) {
    EXPECT_TRUE(rank->End().clean());
    EXPECT_EQ(rank->AwaitStarted(0), "0 1 2 3 ");
  }
}

TEST(RankProcess, DiesWithItsSupervisor) {
  // The supervisor is itself a child of this test: it starts a rank, tells its pid and is killed.
  int pids[2];
  ASSERT_EQ(pipe2(pids, O_CLOEXEC), 0);
  const pid_t supervisor = fork();
  if (supervisor == 0) {
    ObservedRank rank(Fake({"hang"}));
    rank.AwaitStarted();
    const pid_t pid = rank.process().pid();
    [[maybe_unused]] const ssize_t n = write(pids[1], &pid, sizeof(pid));
    while (true) pause();
  }
  pid_t rank = -1;
  ASSERT_EQ(read(pids[0], &rank, sizeof(rank)), static_cast<ssize_t>(sizeof(rank)));
  const Descriptor watch = OpenPidfd(rank);
  ASSERT_TRUE(watch.open());
  kill(supervisor, SIGKILL);
  waitpid(supervisor, nullptr, 0);
  pollfd dead = {watch.get(), POLLIN, 0};
  EXPECT_EQ(poll(&dead, 1, 30'000), 1) << "the rank outlived its supervisor";
  close(pids[0]);
  close(pids[1]);
}

TEST(RankLink, TwoRanksMeetThroughTheirSupervisor) {
  Mutex mutex;
  RendezvousHub hub;  // guarded by mutex; replies go to the rank that asked
  std::vector<std::string> results(2);
  std::vector<std::unique_ptr<RankProcess>> ranks(2);
  for (int r : {0, 1}) {
    auto started = RankProcess::Start(
        Fake({"rendezvous"}), {[&, r](const v1::FromRank& message) {
                                 MutexLock lock(mutex);
                                 if (message.has_put()) {
                                   EXPECT_TRUE(hub.Put(message.put().key(), message.put().value()).ok());
                                 } else if (message.has_get()) {
                                   const std::string key = message.get().key();
                                   hub.Get(key, [&ranks, r, key](const std::string& value) {
                                     EXPECT_TRUE(ranks[r]->Send(ValueMessage(key, value)).ok());
                                   });
                                 } else if (message.has_result()) {
                                   results[r] = message.result().message();
                                 }
                               },
                               {},
                               {}});
    ASSERT_TRUE(started.ok()) << started.status();
    MutexLock lock(mutex);
    ranks[r] = *std::move(started);
  }
  for (int r : {0, 1}) {
    v1::ToRank start;
    start.mutable_start()->set_rank(r);
    ASSERT_TRUE(ranks[r]->Send(start).ok());
  }
  for (auto& rank : ranks) EXPECT_EQ(rank->Wait().Describe(), "exited with code 0");
  EXPECT_THAT(results, ElementsAre("value 1", "value 0"));
}

}  // namespace
}  // namespace metp
