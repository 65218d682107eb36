#pragma once

// The store that forgets when the process ends: for tests and for coordinators whose jobs need not survive
// them.

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "server/store/store.h"

namespace metp {

class MemoryStore : public Store {
 public:
  absl::StatusOr<std::vector<v1::JobRecord>> Load() override;
  absl::StatusOr<int64_t> LastSequence() override { return last_sequence_; }
  absl::Status Put(const v1::JobRecord& record) override;
  absl::Status Delete(const std::string& id) override;

 private:
  std::map<std::string, v1::JobRecord> records_;
  int64_t last_sequence_ = 0;
};

}  // namespace metp
