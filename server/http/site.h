#pragma once

// What the coordinator serves over HTTP, by path.

#include <chrono>
#include <functional>
#include <map>
#include <string>

#include "proto/support/clock.h"
#include "proto/support/http_server.h"
#include "server/job_table.h"
#include "server/registry.h"

namespace metp {

/// What the pages read, all of it thread-safe and there as long as they are served.
struct Site {
  const JobTable& jobs;
  const Registry& workers;
  const Clock& clock;
  std::function<std::string()> coordinator;  // HOST:PORT that workers and clients dial
  std::function<bool()> store_writable;
  std::string state_folder = {};  // of the store; empty: it is in memory
};

std::map<std::string, HttpServer::Handler> SitePages(const Site& site);

/// Prometheus' HTTP service discovery: the workers' metrics, as JSON.
std::string WorkerTargets(const Registry& workers);

}  // namespace metp
