#pragma once

// Workers together with the ranks they hold: what lists, metrics and the status page show. Pure.

#include <vector>

#include "server/job_table.h"
#include "server/registry.h"

namespace metp {

inline std::vector<v1::WorkerStatus> WorkersWithRanks(const Registry& workers, const JobTable& jobs) {
  std::vector<v1::WorkerStatus> all = workers.List();
  for (const LiveRank& rank : jobs.LiveRanks()) {
    for (v1::WorkerStatus& worker : all) {
      if (worker.name() != rank.worker) continue;
      worker.set_job(rank.job);
      worker.set_rank(rank.rank);
    }
  }
  return all;
}

}  // namespace metp
