#include "worker/rank/process_spawn.h"

extern "C" {  // glibc 2.36 left the linkage out of this header
}

#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "proto/support/status_macros.h"

namespace metp {
namespace {

constexpr int kFirstFree =
    10;  // descriptors the child needs stay clear of 0 to kChildSocket until it moves them there

absl::Status SystemError(const char* what) {
  return absl::InternalError(absl::StrCat(what, ": ", std::strerror(errno)));
}

/// The same descriptor, above the low numbers and closed on exec.
absl::StatusOr<Descriptor> Raise(int fd) {
  const Descriptor low(fd);
  const int raised = fcntl(fd, F_DUPFD_CLOEXEC, kFirstFree);
  if (raised < 0) return SystemError("cannot duplicate a descriptor");
  return Descriptor(raised);
}

std::vector<std::string> Environment(const std::vector<std::pair<std::string, std::string>>& changes) {
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string name(*entry, std::strcspn(*entry, "="));
    bool changed = false;
    for (const auto& change : changes) changed |= change.first == name;
    if (!changed) result.emplace_back(*entry);
  }
  for (const auto& [name, value] : changes) result.push_back(absl::StrCat(name, "=", value));
  return result;
}

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (const std::string& s : strings) pointers.push_back(const_cast<char*>(s.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

struct ChildSide {
  char* const* argv;
  char* const* envp;
  int socket, output, null, report;
  pid_t parent;
};

/// The child between fork and exec: async-signal-safe calls only.
[[noreturn]] void BecomeRank(const ChildSide& side) {
  const auto fail = [&](int error) {
    [[maybe_unused]] const ssize_t n = write(side.report, &error, sizeof(error));
    _exit(127);
  };
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) fail(errno);
  if (getppid() != side.parent) _exit(127);  // it died before the line above
  setpgid(0, 0);
  for (int signal = 1; signal < _NSIG; ++signal) {
    struct sigaction action = {};
    action.sa_handler = SIG_DFL;
    sigaction(signal, &action, nullptr);  // refused for SIGKILL, SIGSTOP and the C library's own
  }
  sigset_t none;
  sigemptyset(&none);
  if (sigprocmask(SIG_SETMASK, &none, nullptr) != 0) fail(errno);
  if (dup2(side.null, 0) < 0 || dup2(side.output, 1) < 0 || dup2(side.output, 2) < 0 ||
      dup2(side.socket, kChildSocket) < 0) {
    fail(errno);
  }
  // Ours are closed on exec already; a library's may not be.
  if (syscall(SYS_close_range, kChildSocket + 1, ~0u, CLOSE_RANGE_CLOEXEC) != 0) {
    for (int fd = kChildSocket + 1; fd < 4096; ++fd) fcntl(fd, F_SETFD, FD_CLOEXEC);
  }
  execve(side.argv[0], side.argv, side.envp);
  fail(errno);
  _exit(127);
}

}  // namespace

absl::StatusOr<SpawnedChild> SpawnChild(const std::vector<std::string>& argv,
                                        const std::vector<std::pair<std::string, std::string>>& environment) {
  const std::vector<std::string> environment_strings = Environment(environment);
  const std::vector<char*> arg_pointers = Pointers(argv), env_pointers = Pointers(environment_strings);

  int sockets[2], output[2], report[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) return SystemError("socketpair");
  SpawnedChild child;
  child.socket = Descriptor(sockets[0]);
  METP_ASSIGN_OR_RETURN(Descriptor child_socket, Raise(sockets[1]));
  if (pipe2(output, O_CLOEXEC) != 0) return SystemError("pipe");
  child.output = Descriptor(output[0]);
  METP_ASSIGN_OR_RETURN(Descriptor child_output, Raise(output[1]));
  if (pipe2(report, O_CLOEXEC) != 0) return SystemError("pipe");
  Descriptor report_read(report[0]);
  METP_ASSIGN_OR_RETURN(Descriptor report_write, Raise(report[1]));
  METP_ASSIGN_OR_RETURN(const Descriptor null, Raise(open("/dev/null", O_RDONLY | O_CLOEXEC)));
  fcntl(child.socket.get(), F_SETFL, O_NONBLOCK);
  fcntl(child.output.get(), F_SETFL, O_NONBLOCK);

  const ChildSide side = {arg_pointers.data(),
                          env_pointers.data(),
                          child_socket.get(),
                          child_output.get(),
                          null.get(),
                          report_write.get(),
                          getpid()};
  // No handler of ours may run in the child before it has reset them.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  child.pid = fork();
  if (child.pid == 0) BecomeRank(side);
  const int fork_error = errno;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (child.pid < 0) {
    errno = fork_error;
    return SystemError("fork");
  }

  // The report ends empty when exec closed it.
  report_write.Close();
  int error = 0;
  ssize_t n;
  do {
    n = read(report_read.get(), &error, sizeof(error));
  } while (n < 0 && errno == EINTR);
  if (n > 0) {
    waitpid(child.pid, nullptr, 0);
    const std::string what = absl::StrCat("cannot execute ", argv[0], ": ", std::strerror(error));
    if (error == ENOENT || error == ENOTDIR) return absl::NotFoundError(what);
    if (error == EACCES) return absl::PermissionDeniedError(what);
    return absl::InternalError(what);
  }
  child.pidfd = OpenPidfd(child.pid);
  if (!child.pidfd.open()) {
    const absl::Status status = SystemError("pidfd_open");
    kill(child.pid, SIGKILL);
    waitpid(child.pid, nullptr, 0);
    return status;
  }
  return child;
}

}  // namespace metp
