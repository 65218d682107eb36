#include "server/change_hub.h"

#include <algorithm>
#include <utility>

namespace metp {

ChangeHub::Subscription& ChangeHub::Subscription::operator=(Subscription&& other) noexcept {
  if (this != &other) {
    Reset();
    hub_ = std::exchange(other.hub_, nullptr);
    key_ = std::move(other.key_);
    notice_ = std::move(other.notice_);
  }
  return *this;
}

void ChangeHub::Subscription::Reset() {
  if (hub_ != nullptr) hub_->Remove(key_, notice_);
  hub_ = nullptr;
  notice_.reset();
}

ChangeHub::Subscription ChangeHub::Subscribe(const std::string& key, Notice notice) {
  auto shared = std::make_shared<Notice>(std::move(notice));
  MutexLock lock(mutex_);
  notices_[key].push_back(shared);
  return Subscription(this, key, std::move(shared));
}

void ChangeHub::Notify(const std::string& key) {
  std::vector<std::shared_ptr<Notice>> now;
  {
    MutexLock lock(mutex_);
    const auto found = notices_.find(key);
    if (found == notices_.end()) return;
    now = found->second;
  }
  for (const auto& notice : now) (*notice)();
}

void ChangeHub::Close() {
  closed_ = true;
  std::vector<std::shared_ptr<Notice>> all;
  {
    MutexLock lock(mutex_);
    for (const auto& [key, notices] : notices_) all.insert(all.end(), notices.begin(), notices.end());
  }
  for (const auto& notice : all) (*notice)();
}

void ChangeHub::Remove(const std::string& key, const std::shared_ptr<Notice>& notice) {
  MutexLock lock(mutex_);
  const auto found = notices_.find(key);
  if (found == notices_.end()) return;
  std::erase(found->second, notice);
  if (found->second.empty()) notices_.erase(found);
}

}  // namespace metp
