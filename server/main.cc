// metp-coordinator: one per cluster. Takes jobs, places them on workers, serves metrics and a status page.

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/numbers.h"
#include "nlohmann/json.hpp"
#include "proto/support/names.h"
#include "proto/support/version.h"
#include "server/coordinator.h"
#include "server/store/memory_store.h"
#include "server/store/sqlite_store.h"

namespace metp {
namespace {

/// Scripts wait for this file; it appears whole or not at all.
bool WriteReadyFile(const std::string& path, const Coordinator& coordinator) {
  const nlohmann::json ready = {{"listen", coordinator.address()},
                                {"http", coordinator.http_address()},
                                {"pid", static_cast<int>(getpid())}};
  const std::string part = path + ".part";
  {
    std::ofstream file(part);
    file << ready.dump() << "\n";
    if (!file.flush()) return false;
  }
  return std::rename(part.c_str(), path.c_str()) == 0;
}

/// The store in `folder`, which it makes; in memory without one.
absl::StatusOr<std::unique_ptr<Store>> OpenStore(const std::string& folder) {
  if (folder.empty()) return std::make_unique<MemoryStore>();
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return absl::UnavailableError(folder + ": " + error.message());
  return SqliteStore::Open(folder + "/jobs.db");
}

int Run(const CoordinatorConfig& config, const std::string& ready_file, const sigset_t& signals) {
  RealClock clock;
  const absl::StatusOr<std::unique_ptr<Store>> store = OpenStore(config.state);
  if (!store.ok()) {
    std::fprintf(stderr, "metp-coordinator: --state: %s\n", std::string(store.status().message()).c_str());
    return 1;
  }
  Coordinator coordinator(config, clock, **store);
  if (const absl::Status status = coordinator.Start(); !status.ok()) {
    std::fprintf(stderr, "metp-coordinator: %s\n", std::string(status.message()).c_str());
    return 1;
  }
  if (!ready_file.empty() && !WriteReadyFile(ready_file, coordinator)) {
    std::fprintf(stderr, "metp-coordinator: cannot write %s\n", ready_file.c_str());
    return 1;
  }
  std::printf("metp-coordinator %s listening on %s, metrics and status on http://%s\n", kVersion,
              coordinator.address().c_str(), coordinator.http_address().c_str());
  if (config.state.empty()) std::printf("jobs are kept in memory only: --state FOLDER keeps them\n");
  std::fflush(stdout);
  int signal = 0;
  sigwait(&signals, &signal);
  std::fprintf(stderr, "metp-coordinator: stopping on %s\n", signal == SIGTERM ? "SIGTERM" : "SIGINT");
  coordinator.Stop();
  return 0;
}

}  // namespace
}  // namespace metp

int main(int argc, char** argv) {
  // Before any thread exists, so that all inherit it and only sigwait sees these.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  setenv("GRPC_VERBOSITY", "NONE", 0);  // errors are told by whoever meets them

  metp::CoordinatorConfig config;
  std::string ready_file;
  int suspect_ms = static_cast<int>(config.suspect_after.count()),
      lease_ms = static_cast<int>(config.lease.count());
  CLI::App app{"Takes training jobs, places them on workers, watches over them"};
  app.set_version_flag("--version", metp::kVersion);
  app.add_option("--listen", config.listen, "HOST:PORT for metpctl and workers; port 0 takes a free one")
      ->check(metp::HostPortError)
      ->capture_default_str();
  app.add_option("--http", config.http,
                 "HOST:PORT of /metrics, /healthz and the status page; port 0 takes a free one")
      ->check(metp::HostPortError)
      ->capture_default_str();
  app.add_option("--ready-file", ready_file,
                 "written with the actual addresses, as JSON, when all is served");
  app.add_option(
      "--state", config.state,
      "folder that keeps jobs, their curves and the known workers; without it they are forgotten when this "
      "program ends");
  app.add_option("--suspect-after-ms", suspect_ms, "silence after which a worker gets no new ranks")
      ->capture_default_str()
      ->check(CLI::Range(100, 3600000));
  app.add_option("--lease-ms", lease_ms, "silence after which a worker is lost and its ranks count as gone")
      ->capture_default_str()
      ->check(CLI::Range(200, 3600000));
  int hang_floor_ms = static_cast<int>(config.hang_floor.count()),
      start_timeout_ms = static_cast<int>(config.start_timeout.count()),
      replan_after_ms = static_cast<int>(config.replan_after.count()),
      backoff_ms = static_cast<int>(config.restart_backoff.count());
  std::vector<std::string> quotas;
  app.add_option("--quota", quotas, "NAMESPACE=WORKERS that its jobs may hold at once; may be repeated")
      ->allow_extra_args(false);
  app.add_option("--restart-backoff-ms", backoff_ms,
                 "wait before a job is tried again after a fault; doubles while there is no newer checkpoint")
      ->capture_default_str()
      ->check(CLI::Range(0, 3600000));
  app.add_option("--replan-after-ms", replan_after_ms,
                 "how long a job that may run on fewer workers waits for those that are missing")
      ->capture_default_str()
      ->check(CLI::Range(0, 86400000));
  app.add_option("--hang-factor", config.hang_factor,
                 "an attempt hangs when a step takes so many times the longest of the last")
      ->capture_default_str()
      ->check(CLI::Range(1.0, 1e6));
  app.add_option("--hang-floor-ms", hang_floor_ms, "and at least this long")
      ->capture_default_str()
      ->check(CLI::Range(100, 86400000));
  app.add_option("--start-timeout-ms", start_timeout_ms,
                 "and this long before its first step, and while checkpoints are waited for")
      ->capture_default_str()
      ->check(CLI::Range(100, 86400000));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  config.suspect_after = std::chrono::milliseconds(suspect_ms);
  config.lease = std::chrono::milliseconds(lease_ms);
  config.hang_floor = std::chrono::milliseconds(hang_floor_ms);
  config.start_timeout = std::chrono::milliseconds(start_timeout_ms);
  config.replan_after = std::chrono::milliseconds(replan_after_ms);
  config.restart_backoff = std::chrono::milliseconds(backoff_ms);
  for (const std::string& quota : quotas) {
    const size_t equals = quota.rfind('=');
    int workers = 0;
    const std::string name = quota.substr(0, std::min(equals, quota.size()));
    if (equals == std::string::npos || !metp::NameError(name).empty() || config.quotas.count(name) > 0 ||
        !absl::SimpleAtoi(quota.substr(equals + 1), &workers) || workers < 0) {
      std::fprintf(stderr,
                   "metp-coordinator: --quota: found '%s', expected NAMESPACE=WORKERS, each namespace once\n",
                   quota.c_str());
      return 2;
    }
    config.quotas[name] = workers;
  }
  return metp::Run(config, ready_file, signals);
}
