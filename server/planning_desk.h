#pragma once

// Where jobs are planned: a thread of its own, since a plan may take seconds and the event loop must not stand. Plans
// of the same job on the same workers are remembered.

#include <deque>
#include <functional>
#include <map>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "proto/support/mutex.h"
#include "server/planner/planner.h"

namespace metp {

class PlanningDesk {
 public:
  using Done = std::function<void(absl::StatusOr<Choice>)>;
  using Wanted = std::function<bool()>;

  PlanningDesk() : thread_([this] { Run(); }) {}
  ~PlanningDesk() { Stop(); }

  /// Plans, then calls `done` on the desk's thread; Cancelled where `wanted` says no when its turn comes. `job`: normalized
  /// and valid. Never blocks. Any thread.
  void Post(v1::JobSpec job, Workers workers, Wanted wanted, Done done) METP_EXCLUDES(mutex_);
  /// Ends the thread after the plan in hand. What waits, and what is posted later, is answered Unavailable.
  void Stop() METP_EXCLUDES(mutex_);

 private:
  struct Order {
    v1::JobSpec job;
    Workers workers;
    Wanted wanted;
    Done done;
  };
  void Run() METP_EXCLUDES(mutex_);
  absl::StatusOr<Choice> Plan(const Order& order);

  std::map<std::string, absl::StatusOr<Choice>> remembered_;  // the desk's thread
  Mutex mutex_;
  CondVar changed_;
  std::deque<Order> orders_ METP_GUARDED_BY(mutex_);
  bool stop_ METP_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace metp
