#pragma once

// A program under test: started with its output in pipes, waited for by condition and deadline, never by
// sleeping. Killed when its handle goes, and when the test dies. One thread at a time.

#include <sys/types.h>

#include <chrono>
#include <map>
#include <string>
#include <vector>

namespace metp {

class Subprocess {
 public:
  using Environment = std::map<std::string, std::string>;
  static constexpr std::chrono::seconds kPatience{60};  // far above what anything here takes

  explicit Subprocess(const std::vector<std::string>& command, const Environment& environment = {});
  ~Subprocess();
  Subprocess(const Subprocess&) = delete;
  Subprocess& operator=(const Subprocess&) = delete;

  pid_t pid() const { return pid_; }
  void Signal(int signal) const;

  /// The next line of stdout; false at its end. A test failure when patience runs out.
  bool ReadLine(std::string& line);
  /// The first line of stdout, from here on, that contains `text`; empty if none comes.
  std::string ReadUntil(const std::string& text);
  /// The same of stderr.
  std::string ReadErrorUntil(const std::string& text);

  struct Exit {
    int code = -1;    // 128 + signal if killed
    std::string out;  // what was not read before
    std::string error;
  };
  /// Reads both outputs to their ends and waits. A test failure (and SIGKILL) when patience runs out.
  Exit Wait(std::chrono::seconds patience = kPatience);

 private:
  struct Pipe {
    int fd = -1;
    std::string buffer;
    bool ended = false;
  };
  /// Waits for output or the end of either pipe. False when patience ran out.
  bool Poll(std::chrono::steady_clock::time_point deadline);
  bool NextLine(Pipe& pipe, std::string& line);

  pid_t pid_ = -1;
  bool reaped_ = false;
  Pipe out_, error_;
};

/// Runs a program to its end.
Subprocess::Exit RunProgram(const std::vector<std::string>& command,
                            const Subprocess::Environment& environment = {});

}  // namespace metp
