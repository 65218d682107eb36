#include "worker/rank/rendezvous.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace metp {
namespace {

absl::Status PutOnce(std::map<std::string, std::string>& values, const std::string& key,
                     const std::string& value) {
  const auto [it, added] = values.emplace(key, value);
  if (added || it->second == value) return absl::OkStatus();
  return absl::AlreadyExistsError(absl::StrCat(
      "rendezvous key ", key, " already holds another value; a new attempt needs a new key space"));
}

}  // namespace

absl::Status LocalRendezvous::Put(const std::string& key, const std::string& value) {
  MutexLock lock(mutex_);
  const absl::Status status = PutOnce(values_, key, value);
  changed_.NotifyAll();
  return status;
}

absl::StatusOr<std::string> LocalRendezvous::Get(const std::string& key, std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  MutexLock lock(mutex_);
  while (true) {
    const auto it = values_.find(key);
    if (it != values_.end()) return it->second;
    if (!closed_.ok()) return closed_;
    if (!changed_.WaitUntil(mutex_, deadline) && std::chrono::steady_clock::now() >= deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat("nobody put rendezvous key ", key, " in ", timeout.count(), " ms"));
    }
  }
}

void LocalRendezvous::Close(const absl::Status& status) {
  MutexLock lock(mutex_);
  if (closed_.ok()) closed_ = status;
  changed_.NotifyAll();
}

absl::Status RendezvousHub::Put(const std::string& key, const std::string& value) {
  if (absl::Status status = PutOnce(values_, key, value); !status.ok()) return status;
  const auto it = waiting_.find(key);
  if (it == waiting_.end()) return absl::OkStatus();
  const std::vector<Reply> replies = std::move(it->second);
  waiting_.erase(it);
  for (const Reply& reply : replies) reply(value);
  return absl::OkStatus();
}

void RendezvousHub::Get(const std::string& key, Reply reply) {
  const auto it = values_.find(key);
  if (it == values_.end()) {
    waiting_[key].push_back(std::move(reply));
  } else {
    reply(it->second);
  }
}

}  // namespace metp
