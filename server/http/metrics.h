#pragma once

// The coordinator's /metrics, made at each scrape from the tables. Names and labels: the table in README.md.

#include <string>

#include "server/job_table.h"
#include "server/registry.h"

namespace metp {

/// `store_writable`: its last write was taken.
std::string CoordinatorMetrics(const JobTable& jobs, const Registry& workers, bool store_writable);

}  // namespace metp
