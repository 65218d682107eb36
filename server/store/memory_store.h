#pragma once

// The store that forgets when the process ends: for tests and for coordinators whose jobs need not survive
// them.

#include <map>
#include <string>

#include "server/store/store.h"

namespace metp {

class MemoryStore : public Store {
 public:
  absl::StatusOr<StoredState> Load() override;
  absl::Status Write(const StoreChange& change) override;

 private:
  struct Job {
    v1::JobRecord record;
    std::map<int, v1::StoredStep> steps;
    std::map<int64_t, v1::LogLine> output;
  };
  std::map<std::string, Job> jobs_;
  std::map<std::string, v1::WorkerHello> workers_;
  std::map<std::string, StoreChange::Taken> taken_;
  std::map<std::string, StoreChange::Drain> drains_;
  int64_t last_sequence_ = 0;
};

}  // namespace metp
