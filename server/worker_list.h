#pragma once

// Workers together with the ranks they hold: what lists, metrics and the status page show. Pure.

#include <map>
#include <string>
#include <vector>

#include "server/job_table.h"
#include "server/registry.h"

namespace metp {

inline std::vector<v1::WorkerStatus> WorkersWithRanks(const Registry& workers, const JobTable& jobs) {
  std::vector<v1::WorkerStatus> all = workers.List();
  std::map<std::string, v1::WorkerStatus*> by_name;
  for (v1::WorkerStatus& worker : all) by_name[worker.name()] = &worker;
  for (const LiveRank& rank : jobs.LiveRanks()) {
    const auto found = by_name.find(rank.worker);
    if (found == by_name.end()) continue;
    found->second->set_job(rank.job);
    found->second->set_rank(rank.rank);
  }
  return all;
}

}  // namespace metp
