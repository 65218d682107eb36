#pragma once

// A job's history as the page shows it: categories and passes in their own order, with names and colours. Pure.

#include <string>
#include <utility>
#include <vector>

#include "server/job_table.h"

namespace metp {

struct MemoryOver {
  std::string name, color;
  std::vector<double> peak, current;  // bytes, by point
};
/// Neighbouring points merged until there are `limit` at most.
JobHistory Thinned(JobHistory history, size_t limit);
std::vector<MemoryOver> MemoryOverSteps(const JobHistory& history);

struct PassOver {
  std::string name;
  std::vector<double> hidden;  // 0 to 1, by point; NaN where nothing was communicated
  double recent = 0;           // the same over the last steps
  bool communicates = false;
};
std::vector<PassOver> PassesOverSteps(const JobHistory& history);

/// Seconds of each pass over the last steps, of one step and the mean rank.
struct RecentPasses {
  int steps = 0;
  std::vector<std::pair<std::string, JobHistory::Pass>> passes;
};
RecentPasses PassesLately(const JobHistory& history, int ranks);

/// Of all ranks together over the attempt, a last row "all passes"; empty: none has reported.
std::vector<std::pair<std::string, v1::PassTimes>> PassTotals(const v1::JobStatus& status);

/// Model FLOPs over the peak that the prediction stands on, over the last steps; 0: not known.
double MeasuredMfu(const v1::JobStatus& status);
/// "1.253 s", "12.5 ms", "80 µs".
std::string ShortTime(double seconds);
/// "attention forward" for "attention_forward".
std::string PassLabel(std::string name);
/// The colour of a memory category.
std::string CategoryColor(const std::string& name);
/// Its place in a stack, and that of a pass in a step; unknown ones come last.
size_t CategoryPlace(const std::string& name);
size_t PassPlace(const std::string& name);

}  // namespace metp
