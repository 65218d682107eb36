#pragma once

// What was measured, printed line by line as it comes, and at the end as a Markdown block for tests/gpu/RESULTS.md.

#include <string>
#include <vector>

namespace metp::gpu_bench {

struct Row {
  std::string name;
  double seconds = 0;
  double rate = 0;    // in the section's unit
  double share = -1;  // of the section's ceiling; below 0: none
  std::string note;
};

class Report {
 public:
  /// `unit` of the rates that follow; `ceiling`: what shares are of, empty where there are none.
  void Section(const std::string& title, const std::string& unit, const std::string& ceiling);
  void Add(const Row& row);
  /// A line of text in the section.
  void Say(const std::string& line);
  /// A speed goal and what this run says of it.
  void Goal(const std::string& goal, const std::string& measured);

  /// The goals, then all sections. `head`: lines that say what was measured on.
  std::string Markdown(const std::vector<std::string>& head) const;

 private:
  std::string unit_;
  std::string sections_;  // Markdown so far
  bool in_table_ = false;
  std::string ceiling_;
  std::vector<std::pair<std::string, std::string>> goals_;
};

}  // namespace metp::gpu_bench
