#include "server/planning_desk.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace metp {
namespace {

constexpr size_t kRemembered = 256;

/// All that a plan depends on.
std::string KeyOf(const v1::JobSpec& job, const Workers& workers) {
  v1::JobSpec shape = job;
  shape.clear_name();
  shape.mutable_data()->clear_source();
  shape.mutable_train()->clear_steps();
  return absl::StrCat(workers.count, "\n", workers.profile ? workers.profile->SerializeAsString() : "", "\n",
                      shape.SerializeAsString());
}

}  // namespace

void PlanningDesk::Post(v1::JobSpec job, Workers workers, Done done) {
  {
    MutexLock lock(mutex_);
    if (!stop_) {
      orders_.push_back({std::move(job), std::move(workers), std::move(done)});
      changed_.NotifyAll();
      return;
    }
  }
  done(absl::UnavailableError("the coordinator is stopping"));
}

void PlanningDesk::Stop() {
  {
    MutexLock lock(mutex_);
    stop_ = true;
    changed_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

void PlanningDesk::Run() {
  while (true) {
    Order order;
    {
      MutexLock lock(mutex_);
      while (orders_.empty() && !stop_) changed_.Wait(mutex_);
      if (orders_.empty()) return;
      order = std::move(orders_.front());
      orders_.pop_front();
    }
    order.done(Plan(order));
  }
}

absl::StatusOr<Choice> PlanningDesk::Plan(const Order& order) {
  const std::string key = KeyOf(order.job, order.workers);
  if (const auto found = remembered_.find(key); found != remembered_.end()) return found->second;
  if (remembered_.size() >= kRemembered) remembered_.clear();
  return remembered_.emplace(key, PlanOn(order.job, order.workers)).first->second;
}

}  // namespace metp
