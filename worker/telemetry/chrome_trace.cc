#include "worker/telemetry/chrome_trace.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "worker/telemetry/timeline.h"

namespace metp {

namespace {

// Above every process's number: viewers take a thread that has its process's for the main one and put that first.
constexpr int kFirstThread = 1000000;
// By which spans beside each other may overlap: what times are rounded to.
constexpr double kRounding = 5e-6;

/// As a JSON string.
std::string Quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20) {
      absl::StrAppendFormat(&out, "\\u%04x", c);
      continue;
    }
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

/// The place of a track among those of a process.
int Place(std::string_view track) {
  if (track == kStepTrack) return 0;
  const auto* found = std::find(std::begin(kStreamNames), std::end(kStreamNames), track);
  return 1 + static_cast<int>(found - std::begin(kStreamNames));
}

std::string Metadata(const char* what, int pid, int tid, const std::string& value) {
  return absl::StrCat(R"({"name":")", what, R"(","ph":"M","pid":)", pid, R"(,"tid":)", tid, R"(,"args":{)",
                      value, "}}");
}

}  // namespace

void ChromeTrace::AddSpan(int pid, std::string_view track, std::string_view name, double start,
                          double seconds) {
  auto& tracks = processes_[pid].tracks;
  auto found = tracks.find(track);
  if (found == tracks.end()) found = tracks.emplace(track, std::vector<Span>()).first;
  found->second.push_back({std::string(name), start, seconds});
  ++spans_;
}

double ChromeTrace::First() const {
  double first = std::numeric_limits<double>::infinity();
  for (const auto& [pid, process] : processes_) {
    for (const auto& [track, spans] : process.tracks) {
      for (const Span& span : spans) first = std::min(first, span.start);
    }
  }
  return first;
}

std::string ChromeTrace::Text() const {
  const double first = First();
  std::vector<std::string> events;
  for (const auto& [pid, process] : processes_) {
    events.push_back(
        Metadata("process_name", pid, kFirstThread, absl::StrCat(R"("name":)", Quoted(process.title))));
    events.push_back(
        Metadata("process_sort_index", pid, kFirstThread, absl::StrCat(R"("sort_index":)", pid)));
    std::vector<const std::pair<const std::string, std::vector<Span>>*> tracks;
    for (const auto& track : process.tracks) tracks.push_back(&track);
    std::stable_sort(tracks.begin(), tracks.end(),
                     [](const auto* a, const auto* b) { return Place(a->first) < Place(b->first); });
    int tid = kFirstThread;
    for (const auto* track : tracks) {
      events.push_back(Metadata("thread_name", pid, tid, absl::StrCat(R"("name":)", Quoted(track->first))));
      events.push_back(
          Metadata("thread_sort_index", pid, tid, absl::StrCat(R"("sort_index":)", tid - kFirstThread)));
      std::vector<Span> spans = track->second;
      std::stable_sort(spans.begin(), spans.end(),
                       [](const Span& a, const Span& b) { return a.start < b.start; });
      for (size_t i = 0; i < spans.size(); ++i) {
        const Span& span = spans[i];
        double seconds = span.seconds;
        // Viewers drop an event that is neither beside nor within the one before it.
        const double next = i + 1 < spans.size() ? spans[i + 1].start - span.start : seconds;
        if (next < seconds && seconds < next + kRounding) seconds = next;
        events.push_back(absl::StrFormat(R"({"name":%s,"ph":"X","pid":%d,"tid":%d,"ts":%.3f,"dur":%.3f})",
                                         Quoted(span.name), pid, tid, 1e6 * (span.start - first),
                                         1e6 * seconds));
      }
      ++tid;
    }
  }
  std::string text = "{\"traceEvents\":[";
  for (size_t i = 0; i < events.size(); ++i) absl::StrAppend(&text, i == 0 ? "\n" : ",\n", events[i]);
  return text + "\n]}\n";
}

}  // namespace metp
