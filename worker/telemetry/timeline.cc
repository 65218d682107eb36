#include "worker/telemetry/timeline.h"

#include <algorithm>
#include <cstdio>

namespace metp {

namespace {

/// As a JSON string. Names and titles hold no control characters.
std::string Quoted(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

std::string Named(const char* what, int stream, std::string_view name) {
  return std::string("{\"name\":\"") + what + "\",\"ph\":\"M\",\"pid\":0,\"tid\":" + std::to_string(stream) +
         ",\"args\":{\"name\":" + Quoted(name) + "}}";
}

}  // namespace

std::string Timeline::ToChromeTrace(const std::string& title) const {
  double first = spans_.empty() ? 0 : spans_.front().start;
  for (const Span& span : spans_) first = std::min(first, span.start);
  std::string out = "{\"traceEvents\":[\n" + Named("process_name", 0, title);
  for (size_t stream = 0; stream < std::size(kStreamNames); ++stream) {
    const bool used = std::any_of(spans_.begin(), spans_.end(), [&](const Span& span) {
      return static_cast<size_t>(span.stream) == stream;
    });
    if (used) out += ",\n" + Named("thread_name", static_cast<int>(stream), kStreamNames[stream]);
  }
  for (const Span& span : spans_) {
    char times[96];
    std::snprintf(times, sizeof times, ",\"ph\":\"X\",\"pid\":0,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f}",
                  static_cast<int>(span.stream), 1e6 * (span.start - first), 1e6 * span.seconds);
    out += ",\n{\"name\":" + Quoted(span.name) + times;
  }
  return out + "\n]}\n";
}

}  // namespace metp
