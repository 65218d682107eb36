#include "server/store/memory_store.h"

namespace metp {

absl::StatusOr<std::vector<v1::JobRecord>> MemoryStore::Load() {
  std::vector<v1::JobRecord> all;
  for (const auto& [id, record] : records_) all.push_back(record);
  std::sort(all.begin(), all.end(),
            [](const v1::JobRecord& a, const v1::JobRecord& b) { return a.sequence() < b.sequence(); });
  return all;
}

absl::Status MemoryStore::Put(const v1::JobRecord& record) {
  if (record.status().id().empty()) {
    return absl::InvalidArgumentError("a job record without an id cannot be stored");
  }
  records_[record.status().id()] = record;
  last_sequence_ = std::max(last_sequence_, record.sequence());
  return absl::OkStatus();
}

absl::Status MemoryStore::Delete(const std::string& id) {
  records_.erase(id);
  return absl::OkStatus();
}

}  // namespace metp
