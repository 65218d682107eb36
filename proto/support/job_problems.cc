// Collecting and formatting what is wrong with a job.

#include "proto/support/job_problems.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace metp {
namespace {

constexpr size_t kMostShown = 50;     // problems; a file of another kind would fill the terminal
constexpr size_t kLongestShown = 60;  // bytes of a value

std::string Prefix(const std::string& file, const Place& place) {
  if (!place.override_text.empty()) {
    return absl::StrCat("--set ", Shown(place.override_text), ": ");
  }
  if (file.empty()) {
    return "";
  }
  return place.line > 0 ? absl::StrCat(file, ":", place.line, ": ") : absl::StrCat(file, ": ");
}

}  // namespace

Place FindPlace(const Places& places, std::string key) {
  while (true) {
    if (auto found = places.find(key); found != places.end()) {
      return found->second;
    }
    if (key.empty()) {
      return Place{};
    }
    const size_t end = key.find_last_of(".[");  // of the section or list around it
    key.resize(end == std::string::npos ? 0 : end);
  }
}

void Problems::Add(Place place, absl::string_view key, absl::string_view message) {
  problems_.push_back({std::move(place), std::string(key), std::string(message)});
}

void Problems::Locate(const Places& places) {
  for (Problem& problem : problems_) {
    if (problem.place.line == 0 && problem.place.override_text.empty()) {
      problem.place = FindPlace(places, problem.key);
    }
  }
}

absl::Status Problems::ToStatus(const std::string& file) const {
  if (problems_.empty()) {
    return absl::OkStatus();
  }
  std::vector<Problem> sorted = problems_;
  std::stable_sort(sorted.begin(), sorted.end(), [](const Problem& a, const Problem& b) {
    const bool a_override = !a.place.override_text.empty(), b_override = !b.place.override_text.empty();
    return a_override || b_override ? b_override && !a_override : a.place.line < b.place.line;
  });
  std::vector<std::string> lines;
  for (const Problem& problem : sorted) {
    if (lines.size() == kMostShown) {
      lines.push_back(absl::StrCat("and ", sorted.size() - kMostShown, " more problems"));
      break;
    }
    lines.push_back(absl::StrCat(Prefix(file, problem.place), problem.key, problem.key.empty() ? "" : ": ",
                                 problem.message));
  }
  return absl::InvalidArgumentError(absl::StrJoin(lines, "\n"));
}

std::string Shown(absl::string_view text) {
  size_t end = std::min(text.size(), kLongestShown);
  while (end > 0 && end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) {
    --end;  // not in the middle of a character
  }
  std::string shown;
  for (const char c : text.substr(0, end)) {
    const unsigned char byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F) {
      absl::StrAppendFormat(&shown, "\\x%02x", byte);
    } else {
      shown.push_back(c);
    }
  }
  return end < text.size() ? shown + "..." : shown;
}

}  // namespace metp
