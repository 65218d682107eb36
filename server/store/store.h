#pragma once

// Where jobs outlive the coordinator. It is loaded once, when the coordinator starts; afterwards every change is written
// before it is acknowledged to anybody. Implementations pass tests/server/store/store_conformance.h. Called by one thread
// at a time.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "metp/v1/status.pb.h"
#include "metp/v1/worker_service.pb.h"

namespace metp {

/// One change, written whole or not at all.
struct StoreChange {
  struct Step {
    std::string job;  // id of a job that is there, or comes with this change
    v1::StoredStep step;
  };
  struct Forget {
    std::string job;
    int after = 0;            // later steps of its curve go
    bool unfinished = false;  // and with it earlier ones that are not whole
  };
  struct Output {
    std::string job;
    int64_t first = 0;               // earlier lines go
    std::vector<v1::LogLine> lines;  // come, or replace those of that offset
  };
  struct Taken {  // events of a worker, up to this one
    std::string worker, incarnation;
    int64_t sequence = 0;
  };
  struct Drain {
    std::string worker;
    bool drained = true;  // otherwise: no longer
    std::string reason = {};
  };
  // In this order:
  std::vector<std::string> deleted = {};  // ids; a job's steps go with it; one that is not there is no error
  std::vector<v1::JobRecord> jobs = {};   // inserted, or replacing the one of that status.id
  std::vector<Forget> forgotten = {};
  std::vector<Step> steps = {};                // inserted, or replacing the one of that job and step
  std::vector<std::string> workers_gone = {};  // names
  std::vector<v1::WorkerHello> workers = {};   // inserted, or replacing the one of that name
  std::vector<Output> output = {};
  std::vector<Taken> taken = {};
  std::vector<Drain> drains = {};

  bool empty() const {
    return deleted.empty() && jobs.empty() && forgotten.empty() && steps.empty() && workers_gone.empty() &&
           workers.empty() && output.empty() && taken.empty() && drains.empty();
  }
};

struct StoredJob {
  v1::JobRecord record;
  std::vector<v1::StoredStep> steps;     // ascending
  std::vector<v1::LogLine> output = {};  // ascending
};

struct StoredState {
  std::vector<StoredJob> jobs;  // by ascending sequence
  /// The highest sequence ever written, also of jobs deleted since; 0 for a new store. Numbers are never used again.
  int64_t last_sequence = 0;
  std::vector<v1::WorkerHello> workers;         // by name
  std::vector<StoreChange::Taken> taken = {};   // by name
  std::vector<StoreChange::Drain> drains = {};  // of drained ones, by name
};

class Store {
 public:
  virtual ~Store() = default;
  virtual absl::StatusOr<StoredState> Load() = 0;
  /// Durable when it returns OK. InvalidArgument: a job without an id, a step or output of a job that is not there. Unavailable:
  /// not written, everything is as it was.
  virtual absl::Status Write(const StoreChange& change) = 0;
};

/// The refusals, in one wording. `what`: "a step".
inline absl::Status JobWithoutId() {
  return absl::InvalidArgumentError("a job record without an id cannot be stored");
}
inline absl::Status OfNoJob(const std::string& what, const std::string& job) {
  return absl::InvalidArgumentError(what + " of job '" + job + "', which is not there, cannot be stored");
}

}  // namespace metp
