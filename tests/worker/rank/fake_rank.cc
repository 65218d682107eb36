// A rank that does what a test tells it to: `fake_rank WHAT [ARGUMENT] --fd N`. Speaks the rank protocol
// where WHAT needs it. The tests of process.h and of the link start it.

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "worker/rank/channel.h"
#include "worker/rank/rendezvous_link.h"

namespace metp {
namespace {

void Started(Channel& channel, const std::string& text) {
  v1::FromRank message;
  message.set_started(text);
  if (!channel.Send(message).ok()) _exit(90);
}

/// Answers each Value with a Put of the same, until the supervisor closes.
int Echo(Channel& channel) {
  v1::ToRank in;
  while (true) {
    const auto received = channel.Receive(&in);
    if (!received.ok()) return 91;
    if (!*received) return 0;
    v1::FromRank out;
    out.mutable_put()->set_key(in.value().key());
    out.mutable_put()->set_value(in.value().value());
    if (!channel.Send(out).ok()) return 92;
  }
}

/// Waits for a signal's default action, or for ever.
[[noreturn]] void Hang() {
  while (true) pause();
}

std::string OpenDescriptors() {
  std::string list;
  DIR* dir = opendir("/proc/self/fd");
  while (const dirent* entry = readdir(dir)) {
    const std::string name = entry->d_name;
    if (name[0] != '.' && std::stoi(name) != dirfd(dir)) list += name + " ";
  }
  closedir(dir);
  return list;
}

std::string BlockedOrIgnoredSignals() {
  sigset_t set;
  sigprocmask(SIG_BLOCK, nullptr, &set);
  std::string list;
  for (int signal = 1; signal < 32; ++signal) {
    struct sigaction action;
    sigaction(signal, nullptr, &action);
    if (sigismember(&set, signal) || action.sa_handler == SIG_IGN) list += std::to_string(signal) + " ";
  }
  return list;
}

int UseRendezvous(int fd) {
  RankLink link(fd, [](const absl::Status&) { _exit(93); });
  ChannelRendezvous rendezvous(link);
  const auto start = link.AwaitStart(std::chrono::seconds(60));
  if (!start.ok()) return 94;
  const std::string own = std::to_string(start->rank()), other = std::to_string(1 - start->rank());
  if (!rendezvous.Put("of/" + own, "value " + own).ok()) return 95;
  const auto value = rendezvous.Get("of/" + other, std::chrono::seconds(60));
  if (!value.ok()) return 96;
  v1::FromRank result;
  result.mutable_result()->set_message(*value);
  return link.Send(result).ok() ? 0 : 97;
}

int Main(const std::string& what, const std::string& argument, int fd) {
  if (what == "rendezvous") return UseRendezvous(fd);
  if (what == "linger") {  // only the link can end it
    RankLink link(fd, [](const absl::Status&) { _exit(5); });
    v1::FromRank message;
    message.set_started("ready");
    if (!link.Send(message).ok()) return 98;
    Hang();
  }
  Channel channel(fd);
  if (what == "echo") return Echo(channel);
  if (what == "exit") return std::stoi(argument);
  if (what == "abort") std::abort();
  if (what == "print") {
    std::fputs(argument.c_str(), stdout);
    std::fflush(stdout);
    std::fputs("and to stderr\nno newline", stderr);
    return 0;
  }
  if (what == "flood") {  // more than a pipe and a socket hold, right up to the exit
    for (int i = 0; i < std::stoi(argument); ++i) {
      std::printf("line %d\n", i);
      Started(channel, std::to_string(i));
    }
    std::fflush(stdout);
    return 0;
  }
  if (what == "hang") {
    Started(channel, "ready");
    Hang();
  }
  if (what == "ignore_sigterm") {
    std::signal(SIGTERM,
                [](int) { [[maybe_unused]] const ssize_t n = write(STDOUT_FILENO, "not now\n", 8); });
    Started(channel, "ready");
    Hang();
  }
  if (what == "close_socket") {
    channel.Shutdown();
    std::puts("closed");
    std::fflush(stdout);
    Hang();
  }
  if (what == "garbage") {
    [[maybe_unused]] const ssize_t n = write(fd, "\xff\xff\xff\xff garbage", 12);
    Hang();
  }
  if (what == "grandchild") {  // outlives this process and keeps its pipe and socket open
    int alive[2];
    if (pipe(alive) != 0) return 99;
    const pid_t child = fork();
    if (child == 0) {
      [[maybe_unused]] const ssize_t n = write(alive[1], "x", 1);
      Hang();
    }
    char byte;
    [[maybe_unused]] const ssize_t n = read(alive[0], &byte, 1);
    Started(channel, std::to_string(child));
    return 0;
  }
  if (what == "inspect") {
    Started(channel, OpenDescriptors());
    Started(channel, BlockedOrIgnoredSignals());
    Started(channel, std::to_string(getpgrp() == getpid()));
    const char* variable = std::getenv("FAKE_RANK");
    Started(channel, variable ? variable : "");
    return 0;
  }
  if (what == "memory") {
    const size_t bytes = std::stoul(argument);
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    std::memset(memory, 1, bytes);
    return static_cast<char*>(memory)[bytes / 2] == 1 ? 0 : 1;
  }
  return 100;
}

}  // namespace
}  // namespace metp

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  const std::string argument = argc > 4 ? argv[2] : "";
  return metp::Main(what, argument, std::atoi(argv[argc - 1]));
}
