#pragma once

// The parts of a job's page that show how it went: over its steps, and against its plan. Each is a section of HTML with
// charts, and the same figures as tables. Pure.

#include <cstdint>
#include <string>

#include "server/job_table.h"

namespace metp {

std::string LossSection(const JobTable::View& job);
std::string SpeedSection(const JobTable::View& job);
/// `capacity`: memory of the smallest device that it runs on; 0: not known.
std::string MemorySection(const JobTable::View& job, int64_t capacity);
/// Memory at the peak by category, plan beside measured.
std::string PeakBars(const JobTable::View& job);
std::string OverlapSection(const JobTable::View& job);
std::string PlanSection(const JobTable::View& job);

/// The rank with the largest peak; nullptr: no rank has reported.
const v1::RankStatus* FullestRank(const v1::JobStatus& status);

}  // namespace metp
