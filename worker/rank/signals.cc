#include "worker/rank/signals.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <utility>

namespace metp {

namespace {

sigset_t RankSignals() {
  sigset_t mask;
  sigemptyset(&mask);
  sigaddset(&mask, SIGTERM);
  sigaddset(&mask, SIGQUIT);
  sigaddset(&mask, SIGINT);
  return mask;
}

}  // namespace

void BlockRankSignals() {
  const sigset_t mask = RankSignals();
  pthread_sigmask(SIG_BLOCK, &mask, nullptr);
}

SignalThread::SignalThread(std::function<void()> on_term, std::function<void()> on_quit,
                           std::function<void()> on_int)
    : on_term_(std::move(on_term)), on_quit_(std::move(on_quit)), on_int_(std::move(on_int)) {
  BlockRankSignals();
  const sigset_t mask = RankSignals();
  signals_ = Descriptor(signalfd(-1, &mask, SFD_CLOEXEC));
  stop_ = Descriptor(eventfd(0, EFD_CLOEXEC));
  thread_ = std::thread([this] { Run(); });
}

void DieOf(int signal) {
  sigset_t mask;
  sigemptyset(&mask);
  sigaddset(&mask, signal);
  std::signal(signal, SIG_DFL);
  pthread_sigmask(SIG_UNBLOCK, &mask, nullptr);
  std::raise(signal);
}

SignalThread::~SignalThread() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = write(stop_.get(), &one, sizeof one);
  thread_.join();
}

void SignalThread::Run() {
  while (true) {
    pollfd fds[] = {{signals_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
    if (poll(fds, 2, -1) < 0) continue;  // EINTR
    if (fds[1].revents != 0) return;
    signalfd_siginfo signal = {};
    if (read(signals_.get(), &signal, sizeof signal) != sizeof signal) continue;
    (signal.ssi_signo == SIGTERM ? on_term_ : signal.ssi_signo == SIGQUIT ? on_quit_ : on_int_)();
  }
}

}  // namespace metp
