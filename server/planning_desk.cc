#include "server/planning_desk.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace metp {
namespace {

constexpr size_t kRemembered = 256;

absl::Status Stopping() { return absl::UnavailableError("the coordinator is stopping"); }

/// All that a plan depends on.
std::string KeyOf(const v1::JobSpec& job, const Workers& workers) {
  v1::JobSpec shape = job;
  shape.clear_name();
  shape.mutable_data()->clear_source();
  shape.mutable_train()->clear_steps();
  shape.mutable_train()->clear_stop_after();
  shape.clear_checkpoint();
  shape.clear_max_restarts();
  shape.clear_priority();
  shape.clear_namespace_();
  return absl::StrCat(workers.limit, " ", workers.count, " ", workers.profiled, " ",
                      static_cast<int>(workers.device), " ", absl::StrJoin(workers.memory_bytes, ","), "\n",
                      workers.profile ? workers.profile->SerializeAsString() : "", "\n",
                      shape.SerializeAsString());
}

}  // namespace

void PlanningDesk::Post(v1::JobSpec job, Workers workers, Wanted wanted, Done done) {
  {
    MutexLock lock(mutex_);
    if (!stop_) {
      orders_.push_back({std::move(job), std::move(workers), std::move(wanted), std::move(done)});
      changed_.NotifyAll();
      return;
    }
  }
  done(Stopping());
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
    bool stopping = false;
    {
      MutexLock lock(mutex_);
      while (orders_.empty() && !stop_) changed_.Wait(mutex_);
      if (orders_.empty()) return;
      order = std::move(orders_.front());
      orders_.pop_front();
      stopping = stop_;
    }
    if (stopping) {
      order.done(Stopping());
    } else if (!order.wanted()) {
      order.done(absl::CancelledError("nobody waits for the answer any more"));
    } else {
      order.done(Plan(order));
    }
  }
}

absl::StatusOr<Choice> PlanningDesk::Plan(const Order& order) {
  const std::string key = KeyOf(order.job, order.workers);
  if (const auto found = remembered_.find(key); found != remembered_.end()) return found->second;
  if (remembered_.size() >= kRemembered) remembered_.clear();
  return remembered_.emplace(key, PlanOn(order.job, order.workers)).first->second;
}

}  // namespace metp
