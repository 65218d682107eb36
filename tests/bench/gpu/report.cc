#include "tests/bench/gpu/report.h"

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace metp::gpu_bench {
namespace {

std::string Time(double seconds) {
  if (seconds >= 1) return absl::StrFormat("%.3f s", seconds);
  if (seconds >= 1e-3) return absl::StrFormat("%.3f ms", seconds * 1e3);
  return absl::StrFormat("%.2f us", seconds * 1e6);
}

}  // namespace

void Report::Section(const std::string& title, const std::string& unit, const std::string& ceiling) {
  unit_ = unit;
  ceiling_ = ceiling;
  in_table_ = false;
  absl::StrAppend(&sections_, "\n### ", title, "\n\n");
  std::printf("\n%s\n", title.c_str());
  std::fflush(stdout);
}

void Report::Add(const Row& row) {
  if (!in_table_) {
    absl::StrAppend(&sections_, "| | time | ", unit_, " | ", ceiling_.empty() ? "" : "of " + ceiling_,
                    " | |\n", "|---|---|---|---|---|\n");
    in_table_ = true;
  }
  const std::string share = row.share < 0 ? "" : absl::StrFormat("%.3f", row.share);
  absl::StrAppendFormat(&sections_, "| %s | %s | %.1f | %s | %s |\n", row.name, Time(row.seconds), row.rate,
                        share, row.note);
  absl::PrintF("  %-52s %12s %10.1f %-8s %-28s %s\n", row.name, Time(row.seconds), row.rate, unit_,
               share.empty() ? "" : share + " of " + ceiling_, row.note);
  std::fflush(stdout);
}

void Report::Say(const std::string& line) {
  absl::StrAppend(&sections_, in_table_ ? "\n" : "", line, "\n\n");
  in_table_ = false;
  std::printf("  %s\n", line.c_str());
  std::fflush(stdout);
}

void Report::Goal(const std::string& goal, const std::string& measured) {
  goals_.emplace_back(goal, measured);
  std::printf("  goal: %s: %s\n", goal.c_str(), measured.c_str());
  std::fflush(stdout);
}

std::string Report::Markdown(const std::vector<std::string>& head) const {
  std::string text = "## Measured\n\n";
  for (const std::string& line : head) absl::StrAppend(&text, "- ", line, "\n");
  absl::StrAppend(&text, "\n| goal | this run |\n|---|---|\n");
  for (const auto& [goal, measured] : goals_) absl::StrAppend(&text, "| ", goal, " | ", measured, " |\n");
  return text + sections_;
}

}  // namespace metp::gpu_bench
