#pragma once

// A coordinator and its workers as real processes on free loopback ports, and metpctl against them.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/subprocess.h"
#include "tests/support/temp_folder.h"

namespace metp {

class Cluster {
 public:
  struct Options {
    int workers = 4;
    std::string rank_program = "metp-rank";     // beside the other programs
    std::vector<std::string> coordinator = {};  // further arguments
    std::vector<std::string> worker = {};
    /// Further arguments of worker i.
    std::function<std::vector<std::string>(int)> worker_of = {};
  };
  /// Returns when every worker is ready.
  explicit Cluster(const Options& options);
  ~Cluster();

  /// Runs metpctl to its end.
  Subprocess::Exit Ctl(const std::vector<std::string>& arguments) const;
  std::unique_ptr<Subprocess> StartCtl(const std::vector<std::string>& arguments) const;
  /// Reads a job's last status; `key` by path ("state", "ranks.0.pid") as text.
  std::string JobField(const std::string& job, const std::string& key) const;
  /// Writes a job file with a script for metp-fake-rank; returns its path. `max_restarts`: 0: a fault is its end.
  std::string ScriptedJob(const std::string& name, int degree, const std::string& script,
                          int max_restarts = 0) const;

  std::unique_ptr<Subprocess> StartWorker(const std::string& name) const;
  /// Ends what is left of it and starts it again, with the same name or addresses; does not wait until it is ready.
  void RestartWorker(int i);
  void RestartCoordinator();
  Subprocess& worker(int i) { return *workers_[i]; }
  Subprocess& coordinator() { return *coordinator_; }
  const std::string& address() const { return address_; }
  const std::string& http() const { return http_; }
  const std::string& worker_metrics(int i) const { return worker_metrics_[i]; }
  const std::string& folder() const { return folder_.path(); }
  static std::string Program(const std::string& name);

 private:
  testing::TempFolder folder_;
  const Options options_;
  std::string address_, http_;
  std::unique_ptr<Subprocess> coordinator_;
  std::vector<std::unique_ptr<Subprocess>> workers_;
  std::vector<std::string> worker_metrics_;
};

}  // namespace metp
