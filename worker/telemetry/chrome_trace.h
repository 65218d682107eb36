#pragma once

// Spans of several processes, each with a few tracks, as a Chrome trace: the JSON that Perfetto and chrome://tracing open.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace metp {

class ChromeTrace {
 public:
  /// `title` names the process `pid`.
  void AddProcess(int pid, std::string_view title) { processes_[pid].title = title; }
  /// Seconds on any one clock. Spans of one track are beside each other, but for what their times are rounded to.
  void AddSpan(int pid, std::string_view track, std::string_view name, double start, double seconds);

  int64_t spans() const { return spans_; }
  /// Complete events ("X") in microseconds from the first span on. Tracks of a process: "step", those of a timeline in
  /// its order, others by name.
  std::string Text() const;

 private:
  struct Span {
    std::string name;
    double start, seconds;
  };
  struct Process {
    std::string title;
    std::map<std::string, std::vector<Span>, std::less<>> tracks;
  };
  double First() const;
  std::map<int, Process> processes_;
  int64_t spans_ = 0;
};

}  // namespace metp
