#pragma once

// The coordinator's `/` for a browser: workers, the queue, running and ended jobs; and what its other pages share. Made at
// the request, at a length that does not grow with the cluster: of long lists the first rows, and how many more there are.

#include <chrono>
#include <string>

#include "server/job_table.h"
#include "server/registry.h"

namespace metp {

/// What a page is made of.
struct PageContext {
  const JobTable& jobs;
  const Registry& workers;
  std::string coordinator;  // HOST:PORT, as workers and clients dial it
  std::chrono::system_clock::time_point started, now;
  bool store_writable = true;
  bool paused = false;  // the page does not load itself again
};

std::string StatusPage(const PageContext& context);

/// A job's state as a badge.
std::string StateBadge(const v1::JobStatus& job);
/// ", up 3m 05s".
std::string UpSince(const PageContext& context);
/// Red, above everything else; empty while the store is writable.
std::string StoreAlert(const PageContext& context);

}  // namespace metp
