#include "server/rendezvous.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace metp {
namespace {
constexpr size_t kMaxValue = 64 << 10;
}

absl::Status RendezvousTable::Put(const std::string& attempt, const std::string& key,
                                  const std::string& value, std::vector<Answer>& answers) {
  if (value.size() > kMaxValue) {
    return absl::InvalidArgumentError(absl::StrCat("rendezvous value '", key, "' has ", value.size(),
                                                   " bytes, expected at most ", kMaxValue));
  }
  Attempt& entry = attempts_[attempt];
  const auto [at, inserted] = entry.values.emplace(key, value);
  if (!inserted && at->second != value) {
    return absl::AlreadyExistsError(
        absl::StrCat("rendezvous key '", key, "' of ", attempt, " already has another value"));
  }
  const auto waiting = entry.waiting.find(key);
  if (waiting != entry.waiting.end()) {
    for (const int rank : waiting->second) answers.push_back({rank, key, value});
    entry.waiting.erase(waiting);
  }
  return absl::OkStatus();
}

void RendezvousTable::Get(const std::string& attempt, int rank, const std::string& key,
                          std::vector<Answer>& answers) {
  Attempt& entry = attempts_[attempt];
  if (const auto value = entry.values.find(key); value != entry.values.end()) {
    answers.push_back({rank, key, value->second});
    return;
  }
  std::vector<int>& waiting = entry.waiting[key];
  if (std::find(waiting.begin(), waiting.end(), rank) == waiting.end()) waiting.push_back(rank);
}

}  // namespace metp
