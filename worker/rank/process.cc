#include "worker/rank/process.h"

extern "C" {  // glibc 2.36 left the linkage out of this header
}

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "proto/support/status_macros.h"
#include "worker/rank/process_spawn.h"

namespace metp {
namespace {

constexpr size_t kMaxLine = 16 << 10;

}  // namespace

std::string RankExit::Describe() const {
  std::string text;
  if (signal != 0) {
    const char* name = sigabbrev_np(signal);
    text = absl::StrCat("killed by signal ", signal, name ? absl::StrCat(" (SIG", name, ")") : "");
  } else {
    text = absl::StrCat("exited with code ", code);
  }
  if (!protocol_error.empty()) absl::StrAppend(&text, " after it broke the protocol: ", protocol_error);
  return text;
}

absl::StatusOr<std::unique_ptr<RankProcess>> RankProcess::Start(RankCommand command,
                                                                RankCallbacks callbacks) {
  std::unique_ptr<RankProcess> process(new RankProcess(std::move(command), std::move(callbacks)));
  process->thread_ = std::thread([p = process.get()] { p->Run(); });
  MutexLock lock(process->mutex_);
  while (!process->started_) process->changed_.Wait(process->mutex_);
  METP_RETURN_IF_ERROR(process->start_);
  return process;
}

RankProcess::~RankProcess() {
  Kill();
  thread_.join();
}

void RankProcess::Run() {
  const absl::Status status = Spawn();
  {
    MutexLock lock(mutex_);
    started_ = true;
    start_ = status;
    finished_ = !status.ok();
    changed_.NotifyAll();
  }
  if (status.ok()) Supervise();
}

absl::Status RankProcess::Spawn() {
  wake_ = Descriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_.open()) return absl::InternalError(absl::StrCat("eventfd: ", std::strerror(errno)));
  std::vector<std::string> argv = {command_.program};
  argv.insert(argv.end(), command_.arguments.begin(), command_.arguments.end());
  argv.insert(argv.end(), {"--fd", absl::StrCat(kChildSocket)});
  METP_ASSIGN_OR_RETURN(SpawnedChild child, SpawnChild(argv, command_.environment));
  pid_ = child.pid;
  pidfd_ = std::move(child.pidfd);
  socket_ = std::move(child.socket);
  output_ = std::move(child.output);
  return absl::OkStatus();
}

void RankProcess::Supervise() {
  bool messages = true, output = true, dead = false;
  while (!dead) {
    bool writing;
    {
      MutexLock lock(mutex_);
      writing = socket_open_ && !queued_.empty();
    }
    pollfd fds[] = {
        {pidfd_.get(), POLLIN, 0},
        {wake_.get(), POLLIN, 0},
        {output ? output_.get() : -1, POLLIN, 0},
        {messages ? socket_.get() : -1, static_cast<short>(POLLIN | (writing ? POLLOUT : 0)), 0},
    };
    if (poll(fds, std::size(fds), -1) < 0) continue;  // EINTR
    dead = fds[0].revents != 0;
    if (fds[1].revents != 0) {
      uint64_t wakes;
      [[maybe_unused]] const ssize_t n = read(wake_.get(), &wakes, sizeof(wakes));
    }
    // Once it is dead, whatever it left is read; what a grandchild may still write is not waited for.
    if (output && (dead || fds[2].revents != 0)) output = ReadOutput();
    if (messages && (dead || (fds[3].revents & ~POLLOUT) != 0)) messages = ReadMessages();
    if (messages && (fds[3].revents & POLLOUT) != 0) WriteQueued();
    if (!messages) {
      MutexLock lock(mutex_);
      socket_open_ = false;
      queued_.clear();
    }
  }
  DeliverLines(/*all=*/true);
  const RankExit exit = Reap();
  if (callbacks_.on_exit) callbacks_.on_exit(exit);
  MutexLock lock(mutex_);
  socket_open_ = false;
  exit_ = exit;
  finished_ = true;
  changed_.NotifyAll();
}

bool RankProcess::ReadMessages() {
  while (true) {
    char bytes[65536];
    const ssize_t n = recv(socket_.get(), bytes, sizeof(bytes), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return true;
    if (n <= 0) return false;
    decoder_.Append({bytes, static_cast<size_t>(n)});
    while (true) {
      const absl::StatusOr<std::optional<std::string>> frame = decoder_.Next();
      if (frame.ok() && !frame->has_value()) break;
      v1::FromRank message;
      if (!frame.ok() || !message.ParseFromString(**frame)) {
        protocol_error_ = frame.ok() ? "a frame that is no FromRank" : std::string(frame.status().message());
        Kill();
        return false;
      }
      if (callbacks_.on_message) callbacks_.on_message(message);
    }
  }
}

bool RankProcess::ReadOutput() {
  // At most a pipe's capacity and a little per call, so that a rank that only ever prints cannot keep the
  // rest waiting.
  for (int i = 0; i < 64; ++i) {
    char bytes[4096];
    const ssize_t n = read(output_.get(), bytes, sizeof(bytes));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return true;
    if (n <= 0) return false;
    line_.append(bytes, n);
    DeliverLines(/*all=*/false);
  }
  return true;
}

void RankProcess::DeliverLines(bool all) {
  const auto deliver = [&](std::string_view line) {
    if (callbacks_.on_output) callbacks_.on_output(line);
  };
  std::string_view rest = line_;
  while (true) {
    const size_t end = rest.find('\n');
    if (end != std::string_view::npos && end <= kMaxLine) {
      deliver(rest.substr(0, end));
      rest.remove_prefix(end + 1);
    } else if (rest.size() > kMaxLine) {
      deliver(rest.substr(0, kMaxLine));
      rest.remove_prefix(kMaxLine);
    } else {
      break;
    }
  }
  if (all && !rest.empty()) {
    deliver(rest);
    rest = {};
  }
  line_ = std::string(rest);
}

void RankProcess::WriteQueued() {
  MutexLock lock(mutex_);
  while (!queued_.empty()) {
    const ssize_t n = send(socket_.get(), queued_.data(), queued_.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return;  // full; or closed, which reading will show
    queued_.erase(0, n);
  }
}

absl::Status RankProcess::Send(const v1::ToRank& message) {
  METP_ASSIGN_OR_RETURN(const std::string frame, EncodeFrame(message));
  MutexLock lock(mutex_);
  if (!socket_open_)
    return absl::UnavailableError(absl::StrCat("rank process ", pid_, " has closed its end"));
  if (queued_.size() + frame.size() > kMaxFrameBytes + 4) {
    return absl::ResourceExhaustedError(
        absl::StrCat("rank process ", pid_, " has left ", queued_.size(), " bytes unread; it hangs"));
  }
  queued_ += frame;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = write(wake_.get(), &one, sizeof(one));
  return absl::OkStatus();
}

void RankProcess::Signal(int signal) {
  if (pidfd_.open()) SendPidfdSignal(pidfd_, signal);
}

void RankProcess::Terminate() { Signal(SIGTERM); }
void RankProcess::Interrupt() { Signal(SIGINT); }
void RankProcess::Dump() { Signal(SIGQUIT); }
void RankProcess::Kill() { Signal(SIGKILL); }

RankExit RankProcess::Reap() {
  int status = 0;
  rusage usage = {};
  while (wait4(pid_, &status, 0, &usage) < 0 && errno == EINTR) {
  }
  RankExit exit;
  if (WIFSIGNALED(status)) {
    exit.signal = WTERMSIG(status);
  } else {
    exit.code = WEXITSTATUS(status);
  }
  exit.max_rss_bytes = static_cast<int64_t>(usage.ru_maxrss) * 1024;
  exit.protocol_error = protocol_error_;
  return exit;
}

RankExit RankProcess::Wait() {
  MutexLock lock(mutex_);
  while (!finished_) changed_.Wait(mutex_);
  return exit_;
}

}  // namespace metp
