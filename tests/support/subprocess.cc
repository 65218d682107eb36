#include "tests/support/subprocess.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

namespace metp {

Subprocess::Subprocess(const std::vector<std::string>& command, const Environment& environment) {
  int out[2], error[2];
  if (pipe2(out, O_CLOEXEC) != 0 || pipe2(error, O_CLOEXEC) != 0) std::abort();
  std::vector<char*> arguments;
  for (const std::string& argument : command) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  pid_ = fork();
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(out[1], STDOUT_FILENO);
    dup2(error[1], STDERR_FILENO);
    for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
    execv(arguments[0], arguments.data());
    _exit(127);
  }
  close(out[1]);
  close(error[1]);
  out_.fd = out[0];
  error_.fd = error[0];
}

Subprocess::~Subprocess() {
  if (!reaped_) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  close(out_.fd);
  close(error_.fd);
}

void Subprocess::Signal(int signal) const { kill(pid_, signal); }

bool Subprocess::Poll(std::chrono::steady_clock::time_point deadline) {
  pollfd fds[2] = {{out_.ended ? -1 : out_.fd, POLLIN, 0}, {error_.ended ? -1 : error_.fd, POLLIN, 0}};
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  if (left.count() <= 0 || poll(fds, 2, static_cast<int>(left.count())) <= 0) return false;
  Pipe* pipes[2] = {&out_, &error_};
  for (int i = 0; i < 2; ++i) {
    if (fds[i].revents == 0) continue;
    char bytes[65536];
    const ssize_t n = read(pipes[i]->fd, bytes, sizeof bytes);
    if (n > 0) pipes[i]->buffer.append(bytes, n);
    if (n == 0) pipes[i]->ended = true;
  }
  return true;
}

bool Subprocess::NextLine(Pipe& pipe, std::string& line) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (true) {
    const size_t end = pipe.buffer.find('\n');
    if (end != std::string::npos) {
      line = pipe.buffer.substr(0, end);
      pipe.buffer.erase(0, end + 1);
      return true;
    }
    if (pipe.ended) return false;
    if (!Poll(deadline)) {
      ADD_FAILURE() << "no line within the patience; stderr so far: " << error_.buffer;
      return false;
    }
  }
}

bool Subprocess::ReadLine(std::string& line) { return NextLine(out_, line); }

std::string Subprocess::ReadUntil(const std::string& text) {
  std::string line;
  while (NextLine(out_, line)) {
    if (line.find(text) != std::string::npos) return line;
  }
  return "";
}

std::string Subprocess::ReadErrorUntil(const std::string& text) {
  std::string line;
  while (NextLine(error_, line)) {
    if (line.find(text) != std::string::npos) return line;
  }
  return "";
}

Subprocess::Exit Subprocess::Wait(std::chrono::seconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (!out_.ended || !error_.ended) {
    if (Poll(deadline)) continue;
    ADD_FAILURE() << "process " << pid_ << " did not end within the patience; stderr: " << error_.buffer;
    kill(pid_, SIGKILL);
    break;
  }
  int status = 0;
  waitpid(pid_, &status, 0);
  reaped_ = true;
  Exit exit;
  exit.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  exit.out = std::move(out_.buffer);
  exit.error = std::move(error_.buffer);
  return exit;
}

Subprocess::Exit RunProgram(const std::vector<std::string>& command,
                            const Subprocess::Environment& environment) {
  return Subprocess(command, environment).Wait();
}

}  // namespace metp
