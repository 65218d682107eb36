#pragma once

// The coordinator's /metrics, made at each scrape from the tables. Names and labels: the table in
// deploy/prometheus/README.md.

#include <chrono>
#include <string>

#include "server/job_table.h"
#include "server/registry.h"

namespace metp {

/// Of the coordinator itself.
struct CoordinatorState {
  bool store_writable = true;  // its last write was taken
  std::chrono::system_clock::time_point started;
  std::string folder = {};  // of the store; empty: it is in memory
};

std::string CoordinatorMetrics(const JobTable& jobs, const Registry& workers, const CoordinatorState& state);

}  // namespace metp
