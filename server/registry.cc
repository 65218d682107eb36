#include "server/registry.h"

#include <algorithm>
#include <cctype>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"

namespace metp {
namespace {

constexpr size_t kLinksKept = 5;

/// What a link can do: the best it did lately, since other jobs may have been on it.
v1::Link Best(const std::vector<v1::Link>& links) {
  v1::Link best = links.front();
  for (const v1::Link& link : links) {
    best.set_bytes_per_second(std::max(best.bytes_per_second(), link.bytes_per_second()));
    best.set_latency_seconds(std::min(best.latency_seconds(), link.latency_seconds()));
  }
  return best;
}

/// Unspecified: cpu.
v1::JobSpec::Device KindOf(const v1::WorkerHello& hello) {
  return hello.device_kind() == v1::JobSpec::DEVICE_GPU ? v1::JobSpec::DEVICE_GPU : v1::JobSpec::DEVICE_CPU;
}

double Seconds(Clock::Duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

bool NaturalLess(const std::string& a, const std::string& b) {
  size_t i = 0, j = 0;
  const auto digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  while (i < a.size() && j < b.size()) {
    if (digit(a[i]) && digit(b[j])) {
      size_t x = i, y = j;
      while (x < a.size() && digit(a[x])) ++x;
      while (y < b.size() && digit(b[y])) ++y;
      while (i + 1 < x && a[i] == '0') ++i;
      while (j + 1 < y && b[j] == '0') ++j;
      if (x - i != y - j) return x - i < y - j;
      const int order = a.compare(i, x - i, b, j, y - j);
      if (order != 0) return order < 0;
      i = x, j = y;
    } else {
      if (a[i] != b[j]) return a[i] < b[j];
      ++i, ++j;
    }
  }
  if (a.size() - i != b.size() - j) return a.size() - i < b.size() - j;
  return a < b;
}

absl::StatusOr<Registry::Connected> Registry::Connect(const v1::WorkerHello& hello,
                                                      std::shared_ptr<WorkerLink> link) {
  if (hello.name().empty() || hello.incarnation().empty()) {
    return absl::InvalidArgumentError("a worker's hello must carry its name and incarnation");
  }
  MutexLock lock(mutex_);
  const auto found = workers_.find(hello.name());
  Connected connected;
  if (found != workers_.end()) {
    const Worker& old = found->second;
    connected.restarted = old.hello.incarnation() != hello.incarnation();
    if (connected.restarted && old.state == v1::WorkerStatus::READY) {
      return absl::AlreadyExistsError(absl::StrCat("a worker named '", hello.name(),
                                                   "' is already registered (pid ", old.hello.pid(), ", ",
                                                   old.hello.address(), "); give this one another --name"));
    }
    if (!connected.restarted) connected.acknowledged = old.acknowledged;
    connected.replaced = old.link;
  }
  Worker worker;
  worker.hello = hello;
  worker.session = connected.session = next_session_++;
  worker.link = std::move(link);
  worker.last_heard = clock_.Now();
  worker.acknowledged = connected.acknowledged;
  worker.taken = found == workers_.end() || connected.restarted ? 0 : found->second.taken;
  if (found != workers_.end()) {
    if (found->second.hello.node() == hello.node()) {
      worker.links_in_node = found->second.links_in_node;
      worker.links_across_nodes = found->second.links_across_nodes;
    }
  }
  if (found != workers_.end()) by_session_.erase(found->second.session);
  by_session_[worker.session] = hello.name();
  workers_[hello.name()] = std::move(worker);
  ++schedule_version_;
  return connected;
}

Registry::Worker* Registry::Current(Session session) {
  const auto found = by_session_.find(session);
  return found == by_session_.end() ? nullptr : &workers_.at(found->second);
}

const Registry::Worker* Registry::Current(Session session) const {
  const auto found = by_session_.find(session);
  return found == by_session_.end() ? nullptr : &workers_.at(found->second);
}

void Registry::Become(Worker& worker, v1::WorkerStatus::State state) {
  if (worker.state == state) return;
  worker.state = state;
  ++schedule_version_;
}

bool Registry::Heard(Session session) {
  MutexLock lock(mutex_);
  Worker* worker = Current(session);
  if (worker == nullptr || worker->state == v1::WorkerStatus::LOST || worker->link == nullptr) return false;
  worker->last_heard = clock_.Now();
  Become(*worker, v1::WorkerStatus::READY);
  spoke_.insert(worker->hello.name());
  return true;
}

void Registry::Disconnect(Session session) {
  MutexLock lock(mutex_);
  Worker* worker = Current(session);
  if (worker == nullptr) return;
  worker->link = nullptr;
  if (worker->state == v1::WorkerStatus::READY) Become(*worker, v1::WorkerStatus::SUSPECT);
}

void Registry::Remove(Session session) {
  MutexLock lock(mutex_);
  const Worker* worker = Current(session);
  if (worker == nullptr) return;
  forgotten_.push_back(worker->hello.name());
  workers_.erase(forgotten_.back());
  by_session_.erase(session);
  ++schedule_version_;
}

std::vector<std::pair<std::string, std::string>> Registry::Expire() {
  std::vector<std::pair<std::string, std::string>> lost;
  std::vector<std::shared_ptr<WorkerLink>> close;
  {
    MutexLock lock(mutex_);
    const Clock::Time now = clock_.Now();
    std::vector<std::string> forgotten;
    std::erase_if(workers_, [&](const auto& entry) METP_ATTRIBUTE(no_thread_safety_analysis) {
      const Worker& worker = entry.second;
      if (worker.state != v1::WorkerStatus::LOST || now - worker.last_heard <= config_.lost_worker_kept)
        return false;
      forgotten.push_back(entry.first);
      by_session_.erase(worker.session);
      ++schedule_version_;
      return true;
    });
    forgotten_.insert(forgotten_.end(), forgotten.begin(), forgotten.end());
    for (auto& [name, worker] : workers_) {
      if (worker.state == v1::WorkerStatus::LOST) continue;
      const Clock::Duration silent = now - worker.last_heard;
      if (silent > config_.lease) {
        lost.emplace_back(name, absl::StrCat("worker ", name, " is lost: not heard for ",
                                             static_cast<int>(Seconds(silent)), " s"));
        Become(worker, v1::WorkerStatus::LOST);
        if (worker.link != nullptr) close.push_back(std::move(worker.link));
        worker.link = nullptr;
        worker.stale.clear();
      } else if (silent > config_.suspect_after) {
        Become(worker, v1::WorkerStatus::SUSPECT);
      }
    }
  }
  for (const auto& link : close) {
    link->Close(absl::DeadlineExceededError("the lease of this worker is over: not heard in time"));
  }
  return lost;
}

std::optional<Clock::Time> Registry::NextDeadline() const {
  MutexLock lock(mutex_);
  std::optional<Clock::Time> next;
  for (const auto& [name, worker] : workers_) {
    Clock::Duration wait = config_.suspect_after;
    if (worker.state == v1::WorkerStatus::SUSPECT) wait = config_.lease;
    if (worker.state == v1::WorkerStatus::LOST) wait = config_.lost_worker_kept;
    const Clock::Time at = worker.last_heard + wait + std::chrono::milliseconds(1);
    if (!next.has_value() || at < *next) next = at;
  }
  return next;
}

void Registry::Load(const StoredState& state) {
  MutexLock lock(mutex_);
  for (const v1::WorkerHello& hello : state.workers) {
    Worker& worker = workers_[hello.name()];
    worker.hello = hello;
    worker.state = v1::WorkerStatus::SUSPECT;
    worker.session = next_session_++;
    worker.last_heard = clock_.Now();
    by_session_[worker.session] = hello.name();
  }
  for (const StoreChange::Taken& taken : state.taken) {
    const auto found = workers_.find(taken.worker);
    if (found == workers_.end() || found->second.hello.incarnation() != taken.incarnation) continue;
    found->second.taken = found->second.acknowledged = taken.sequence;
  }
  for (const StoreChange::Drain& drain : state.drains) drained_[drain.worker] = drain.reason;
}

std::vector<StoreChange::Taken> Registry::TakenChanges() const {
  MutexLock lock(mutex_);
  std::vector<StoreChange::Taken> changes;
  for (const std::string& name : spoke_) {
    const auto found = workers_.find(name);
    if (found == workers_.end() || found->second.taken == found->second.acknowledged) continue;
    changes.push_back({name, found->second.hello.incarnation(), found->second.taken});
  }
  return changes;
}

bool Registry::Owes() const {
  MutexLock lock(mutex_);
  return !spoke_.empty();
}

void Registry::SetDrained(const std::string& name, bool drained, const std::string& reason) {
  MutexLock lock(mutex_);
  drained_.erase(name);
  if (drained) drained_[name] = reason;
  if (const auto found = workers_.find(name); found != workers_.end() && !drained)
    found->second.leaving_until.reset();
  ++schedule_version_;
}

bool Registry::IsDrained(const std::string& name) const {
  MutexLock lock(mutex_);
  return drained_.count(name) > 0;
}

void Registry::SetLeaving(const std::string& name) {
  MutexLock lock(mutex_);
  const auto found = workers_.find(name);
  if (found == workers_.end()) return;
  found->second.leaving_until = clock_.Now() + config_.leaving_for;
  ++schedule_version_;
}

int Registry::drained(v1::JobSpec::Device kind) const {
  MutexLock lock(mutex_);
  return static_cast<int>(
      std::count_if(drained_.begin(), drained_.end(), [&](const auto& entry) METP_REQUIRES(mutex_) {
        const auto found = workers_.find(entry.first);
        return found != workers_.end() && found->second.state != v1::WorkerStatus::LOST &&
               KindOf(found->second.hello) == kind;
      }));
}

bool Registry::Ready(const std::string& worker) const {
  MutexLock lock(mutex_);
  const auto found = workers_.find(worker);
  return found != workers_.end() && found->second.state == v1::WorkerStatus::READY;
}

uint64_t Registry::schedule_version() const {
  MutexLock lock(mutex_);
  return schedule_version_;
}

std::vector<std::string> Registry::TakeForgotten() {
  MutexLock lock(mutex_);
  return std::exchange(forgotten_, {});
}

void Registry::Take(Session session, int64_t sequence) {
  MutexLock lock(mutex_);
  Worker* worker = Current(session);
  if (worker == nullptr) return;
  worker->taken = std::max(worker->taken, sequence);
  spoke_.insert(worker->hello.name());
}

int64_t Registry::Taken(Session session) const {
  MutexLock lock(mutex_);
  const Worker* worker = Current(session);
  return worker == nullptr ? 0 : worker->taken;
}

void Registry::Acknowledge(bool written) {
  MutexLock lock(mutex_);
  for (const std::string& name : spoke_) {
    const auto found = workers_.find(name);
    if (found == workers_.end()) continue;
    Worker& worker = found->second;
    if (written) worker.acknowledged = worker.taken;
    if (worker.link == nullptr) continue;
    v1::ToWorker ack;
    ack.mutable_ack()->set_acknowledged(worker.acknowledged);
    worker.link->Send(std::move(ack));
  }
  if (written) spoke_.clear();
}

bool Registry::AddStale(const std::string& name, const RankId& rank) {
  MutexLock lock(mutex_);
  const auto found = workers_.find(name);
  const bool fresh = found != workers_.end() && found->second.stale.insert(rank).second;
  if (fresh) ++schedule_version_;
  return fresh;
}

void Registry::ClearStale(const std::string& name, const RankId& rank) {
  MutexLock lock(mutex_);
  const auto found = workers_.find(name);
  if (found != workers_.end() && found->second.stale.erase(rank) > 0) ++schedule_version_;
}

std::string Registry::NameOf(Session session) const {
  MutexLock lock(mutex_);
  const Worker* worker = Current(session);
  return worker == nullptr ? "" : worker->hello.name();
}

void Registry::Send(const std::string& name, v1::ToWorker message) {
  std::shared_ptr<WorkerLink> link;
  {
    MutexLock lock(mutex_);
    const auto found = workers_.find(name);
    if (found != workers_.end()) link = found->second.link;
  }
  if (link != nullptr) link->Send(std::move(message));
}

void Registry::CloseAll(const absl::Status& status) {
  std::vector<std::shared_ptr<WorkerLink>> links;
  {
    MutexLock lock(mutex_);
    for (auto& [name, worker] : workers_) {
      if (worker.link != nullptr) links.push_back(worker.link);
    }
  }
  for (const auto& link : links) link->Close(status);
}

void Registry::SetLink(const std::string& worker, const v1::Link& link, bool across_nodes) {
  MutexLock lock(mutex_);
  const auto found = workers_.find(worker);
  if (found == workers_.end()) return;
  std::vector<v1::Link>& links =
      across_nodes ? found->second.links_across_nodes : found->second.links_in_node;
  if (links.size() == kLinksKept) links.erase(links.begin());
  links.push_back(link);
}

bool Registry::Knows(const std::string& worker) const {
  MutexLock lock(mutex_);
  return workers_.count(worker) > 0;
}

std::string Registry::NodeOf(const std::string& worker) const {
  MutexLock lock(mutex_);
  const auto found = workers_.find(worker);
  return found == workers_.end() ? "" : found->second.hello.node();
}

int Registry::registered(v1::JobSpec::Device kind) const {
  MutexLock lock(mutex_);
  return static_cast<int>(
      std::count_if(workers_.begin(), workers_.end(), [&](const auto& entry) METP_REQUIRES(mutex_) {
        return entry.second.state != v1::WorkerStatus::LOST && drained_.count(entry.first) == 0 &&
               KindOf(entry.second.hello) == kind;
      }));
}

std::vector<std::string> Registry::Schedulable(v1::JobSpec::Device kind) const {
  MutexLock lock(mutex_);
  std::vector<std::string> names;
  for (const auto& [name, worker] : workers_) {
    if (worker.state == v1::WorkerStatus::READY && worker.link != nullptr && worker.stale.empty() &&
        drained_.count(name) == 0 && !Leaving(worker) && KindOf(worker.hello) == kind) {
      names.push_back(name);
    }
  }
  std::sort(names.begin(), names.end(), NaturalLess);
  return names;
}

std::vector<v1::WorkerStatus> Registry::List() const {
  MutexLock lock(mutex_);
  std::vector<v1::WorkerStatus> all;
  const Clock::Time now = clock_.Now();
  for (const auto& [name, worker] : workers_) {
    v1::WorkerStatus status;
    status.set_name(name);
    status.set_address(worker.hello.address());
    status.set_metrics_url(worker.hello.metrics_url());
    status.set_state(worker.state);
    status.set_device(worker.hello.device());
    status.set_device_kind(KindOf(worker.hello));
    status.set_threads(worker.hello.threads());
    status.set_memory_bytes(worker.hello.memory_bytes());
    status.set_version(worker.hello.version());
    status.set_pid(worker.hello.pid());
    status.set_incarnation(worker.hello.incarnation());
    status.set_node(worker.hello.node());
    if (worker.hello.has_profile()) {
      v1::DeviceProfile& profile = *status.mutable_profile();
      profile = worker.hello.profile();
      if (!worker.links_in_node.empty()) *profile.mutable_link() = Best(worker.links_in_node);
      if (!worker.links_across_nodes.empty()) *profile.mutable_node_link() = Best(worker.links_across_nodes);
    }
    status.set_silent_seconds(Seconds(now - worker.last_heard));
    if (const auto drained = drained_.find(name); drained != drained_.end()) {
      status.set_drained(true);
      status.set_drain_reason(drained->second);
    }
    if (worker.state == v1::WorkerStatus::LOST) {
      status.set_detail("not heard for longer than its lease");
    } else if (worker.link == nullptr) {
      status.set_detail("disconnected");
    } else if (worker.state == v1::WorkerStatus::SUSPECT) {
      status.set_detail("silent");
    } else if (!worker.stale.empty()) {
      status.set_detail(
          absl::StrCat("waiting for ", worker.stale.size(), " process(es) of an ended attempt"));
    } else if (Leaving(worker)) {
      status.set_detail("leaving");
    }
    all.push_back(std::move(status));
  }
  std::sort(all.begin(), all.end(), [](const v1::WorkerStatus& a, const v1::WorkerStatus& b) {
    return NaturalLess(a.name(), b.name());
  });
  return all;
}

}  // namespace metp
