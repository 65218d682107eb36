#pragma once

// What the streams of one rank did when, for people to look at: written as a Chrome trace, which Perfetto and
// chrome://tracing open. One thread.

#include <string>
#include <string_view>
#include <vector>

namespace metp {

enum class Stream { kCompute, kRing, kCopyOut, kCopyIn, kHost };
inline constexpr const char* kStreamNames[] = {"compute", "ring", "copy out", "copy in", "host"};

class Timeline {
 public:
  /// `name` must live as long as the timeline. Seconds on any one clock.
  void Add(Stream stream, std::string_view name, double start, double seconds) {
    if (seconds > 0) spans_.push_back({stream, name, start, seconds});
  }
  bool empty() const { return spans_.empty(); }

  /// A JSON text: complete events ("X") in microseconds from the first span on, one track a stream. `title` names the
  /// process they belong to.
  std::string ToChromeTrace(const std::string& title) const;

 private:
  struct Span {
    Stream stream;
    std::string_view name;
    double start, seconds;
  };
  std::vector<Span> spans_;
};

}  // namespace metp
