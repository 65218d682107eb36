#pragma once

// Where jobs outlive the coordinator's memory. The job table writes a record before it acknowledges a change,
// and loads all of them once when it starts. Implementations pass tests/server/store/store_conformance.h.
// Called by one thread at a time.

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "metp/v1/status.pb.h"

namespace metp {

class Store {
 public:
  virtual ~Store() = default;
  /// All records, by ascending sequence.
  virtual absl::StatusOr<std::vector<v1::JobRecord>> Load() = 0;
  /// The highest sequence ever put, also of records deleted since; 0 for a new store. Numbers are never used
  /// again.
  virtual absl::StatusOr<int64_t> LastSequence() = 0;
  /// Inserts or replaces the record of `record.status.id`. Durable when it returns OK.
  /// InvalidArgument: no id. Unavailable: not written, the earlier record stands.
  virtual absl::Status Put(const v1::JobRecord& record) = 0;
  /// OK when there is no such record.
  virtual absl::Status Delete(const std::string& id) = 0;
};

}  // namespace metp
