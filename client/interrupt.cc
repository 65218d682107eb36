#include "client/interrupt.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <utility>

namespace metp {
namespace {

// A signal handler reaches nothing but globals.
int g_event = -1;
constexpr uint64_t kSignal = 1, kEnd = uint64_t{1} << 32;

void Handle(int signal) {
  const ssize_t n = write(g_event, &kSignal, sizeof kSignal);
  static_cast<void>(n);
  std::signal(signal, SIG_DFL);
}

}  // namespace

OnInterrupt::OnInterrupt(std::function<void()> action) {
  g_event = eventfd(0, EFD_CLOEXEC);
  thread_ = std::thread([action = std::move(action)] {
    uint64_t events = 0;
    while (read(g_event, &events, sizeof events) == sizeof events) {
      if ((events & (kEnd - 1)) != 0) action();
      if (events >= kEnd) return;
    }
  });
  std::signal(SIGINT, Handle);
  std::signal(SIGTERM, Handle);
}

OnInterrupt::~OnInterrupt() {
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
  const ssize_t n = write(g_event, &kEnd, sizeof kEnd);
  static_cast<void>(n);
  thread_.join();
  close(g_event);
}

}  // namespace metp
