#pragma once

// What the streams of one rank did when, for people to look at: written as a Chrome trace, which Perfetto and
// chrome://tracing open. One thread.

#include <string>
#include <string_view>
#include <vector>

namespace metp {

enum class Stream { kCompute, kWait, kRing, kCopyOut, kCopyIn, kHost };
/// kWait: the compute stream stood waiting.
inline constexpr const char* kStreamNames[] = {"compute", "wait", "ring", "copy out", "copy in", "host"};
/// The track above them in the traces of jobs: the steps themselves.
inline constexpr char kStepTrack[] = "step";

/// What a wait was for, beside the name of its pass.
inline constexpr char kExposed[] = "exposed";  // data on its way
inline constexpr char kSkew[] = "skew";        // a neighbour that was not ready

class Timeline {
 public:
  struct Span {
    Stream stream;
    std::string_view name, detail;
    double start, seconds;
    std::string_view track() const { return kStreamNames[static_cast<int>(stream)]; }
    /// "mlp_forward", or "mlp_forward, skew".
    std::string Title() const;
  };

  /// `name` and `detail` must live as long as the timeline. Seconds on any one clock.
  void Add(Stream stream, std::string_view name, double start, double seconds, std::string_view detail = {}) {
    if (seconds > 0) spans_.push_back({stream, name, detail, start, seconds});
  }
  bool empty() const { return spans_.empty(); }
  const std::vector<Span>& spans() const { return spans_; }
  void Clear() { spans_.clear(); }

  /// The text of a ChromeTrace of one process, `title`, with a track a stream.
  std::string ToChromeTrace(const std::string& title) const;

 private:
  std::vector<Span> spans_;
};

}  // namespace metp
