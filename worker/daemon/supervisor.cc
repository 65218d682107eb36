#include "worker/daemon/supervisor.h"

#include <algorithm>
#include <csignal>
#include <fstream>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/daemon/device.h"
#include "worker/daemon/utf8.h"

namespace metp {

namespace {

/// Processes that the kernel has killed for want of memory, on this machine or in this container; 0: it does not say.
int64_t KillsForMemory() {
  int64_t kills = 0;
  for (const char* path : {"/sys/fs/cgroup/memory.events", "/proc/vmstat"}) {
    std::ifstream file(path);
    std::string name;
    for (int64_t value; file >> name >> value;) {
      if (name == "oom_kill") kills += value;
    }
  }
  return kills;
}

/// To what people are told of this end, by whichever of the two it is.
void Append(const std::string& what, v1::RankEnded& ended) {
  ended.set_how(absl::StrCat(ended.how(), "; ", what));
  if (ended.result().code() != 0)
    ended.mutable_result()->set_message(absl::StrCat(ended.result().message(), "; ", what));
}

}  // namespace

Supervisor::Supervisor(const WorkerConfig& config, const Clock& clock, Outbox& outbox, WorkerMetrics& metrics,
                       GpuWatch* gpu)
    : config_(config), clock_(clock), outbox_(outbox), metrics_(metrics), gpu_(gpu), thread_([this] {
        Run();
      }) {}

Supervisor::~Supervisor() {
  {
    MutexLock lock(mutex_);
    quit_ = true;
  }
  changed_.NotifyAll();
  thread_.join();
  std::map<Key, Rank> rest;
  {
    MutexLock lock(mutex_);
    rest.swap(ranks_);
  }
  for (auto& [key, rank] : rest) {
    if (rank.process != nullptr) rank.process->Kill();
  }
  // Their destructors wait for the processes; late callbacks find no rank and do nothing.
}

void Supervisor::Post(std::function<void()> task) {
  {
    MutexLock lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  changed_.NotifyAll();
}

void Supervisor::Start(v1::StartRank command) {
  Post([this, command = std::move(command)] { DoStart(command); });
}
void Supervisor::Stop(v1::StopRank command) {
  Post([this, command = std::move(command)] { DoStop(command); });
}
void Supervisor::Interrupt(v1::InterruptRank command) {
  Post([this, command = std::move(command)] { DoInterrupt(command); });
}
void Supervisor::Deliver(v1::RankValue command) {
  Post([this, command = std::move(command)] { DoDeliver(command); });
}
void Supervisor::Trace(v1::TraceRank command) {
  Post([this, command = std::move(command)] { DoTrace(command); });
}

void Supervisor::Run() {
  while (true) {
    std::vector<std::function<void()>> batch;
    {
      MutexLock lock(mutex_);
      while (tasks_.empty() && !quit_) {
        const std::optional<Clock::Time> next = NextDue();
        if (!next.has_value()) {
          changed_.Wait(mutex_);
        } else if (clock_.Now() >= *next || !changed_.WaitUntil(mutex_, *next)) {
          break;
        }
      }
      if (quit_) return;
      batch.swap(tasks_);
    }
    for (const auto& task : batch) task();
    Settle();
    KillOverdue();
  }
}

void Supervisor::DoStart(const v1::StartRank& command) {
  const Key key(command.start().attempt(), command.start().rank());
  {
    MutexLock lock(mutex_);
    if (ranks_.count(key) > 0) return;  // repeated after a broken session
    if (leaving_) {
      v1::RankEnded ended;
      ended.set_left(true);
      ended.set_how("not started: its worker was asked to leave");
      PushEnd(key, std::move(ended));
      return;
    }
    Rank& rank = ranks_[key];
    rank.job = command.job_id();
    rank.waiting = command;
    rank.look_at = clock_.Now();
    rank.give_up_at = rank.look_at + config_.gpu_memory_wait;
  }
  Settle();
}

/// Starts ranks, or buries them, whose device memory is free; or does without when it has taken too long.
void Supervisor::Settle() {
  for (const Key& key : ToSettle()) {
    const absl::Status memory = MemoryIsFreeFor(key);
    v1::RankEnded refused;
    bool starts;
    {
      MutexLock lock(mutex_);
      Rank& rank = ranks_.at(key);
      starts = rank.waiting.has_value();
      refused.set_stopped(starts && rank.stop_asked);
      refused.set_left(starts && rank.leave_asked);
      const Clock::Time now = clock_.Now();
      if (absl::IsResourceExhausted(memory) && now < rank.give_up_at && !leaving_ && !refused.stopped() &&
          !refused.left()) {
        rank.look_at = now + config_.gpu_look;
        continue;
      }
    }
    if (!starts) {
      Bury(key, memory);
    } else if (refused.stopped() || refused.left()) {
      refused.set_how("was asked to end before it could be started");
      Forget(key, std::move(refused));
    } else if (memory.ok()) {
      Spawn(key);
    } else {
      refused.set_how(absl::StrCat("could not be started: ", std::string(memory.message())));
      Forget(key, std::move(refused));
    }
    if (absl::IsUnavailable(memory)) gpu_lost_(std::string(memory.message()));
  }
}

std::vector<Supervisor::Key> Supervisor::ToSettle() const {
  MutexLock lock(mutex_);
  const Clock::Time now = clock_.Now();
  std::vector<Key> keys;
  for (const auto& [key, rank] : ranks_) {
    if ((rank.waiting.has_value() || rank.exit.has_value()) && rank.look_at <= now) keys.push_back(key);
  }
  return keys;
}

absl::Status Supervisor::MemoryIsFreeFor(const Key& key) const {
  if (gpu_ == nullptr) return absl::OkStatus();
  {
    MutexLock lock(mutex_);
    const bool ended = ranks_.at(key).exit.has_value();
    for (const auto& [other, rank] : ranks_) {
      // What is in use is that one's; nobody can say whether all of this one's is free.
      if (ended && rank.process != nullptr && !rank.exit.has_value()) return absl::OkStatus();
    }
  }
  return gpu_->MemoryIsFree();
}

void Supervisor::Spawn(const Key& key) {
  v1::StartRank command;
  {
    MutexLock lock(mutex_);
    Rank& rank = ranks_.at(key);
    command = *std::exchange(rank.waiting, std::nullopt);
    rank.kills_before = KillsForMemory();
  }
  metrics_.RankStarted(command.job_id(), key.first, key.second,
                       command.start().job().checkpoint().directory());
  if ((command.start().plan().device() == v1::JobSpec::DEVICE_GPU) != (gpu_ != nullptr)) {
    v1::RankEnded ended;
    ended.set_how(absl::StrCat("could not be started: its plan is for ", gpu_ != nullptr ? "CPUs" : "GPUs",
                               ", and this worker computes on a ", gpu_ != nullptr ? "GPU" : "CPU"));
    metrics_.RankEnded(key.first, key.second);
    Forget(key, std::move(ended));
    return;
  }
  RankCommand rank_command;
  rank_command.program = config_.rank_program;
  if (gpu_ != nullptr) {
    gpu_->RankStarts();
    rank_command.environment = ComputeEnvironment(gpu_->gpu().uuid());
  }
  RankCallbacks callbacks;
  callbacks.on_message = [this, key](const v1::FromRank& message) { OnMessage(key, message); };
  callbacks.on_output = [this, key](std::string_view line) {
    outbox_.PushLine(key.first, key.second, ToUtf8(line));
  };
  callbacks.on_exit = [this, key](const RankExit& exit) { OnExit(key, exit); };
  absl::StatusOr<std::unique_ptr<RankProcess>> process =
      RankProcess::Start(rank_command, std::move(callbacks));
  if (!process.ok()) {
    v1::RankEnded ended;
    ended.set_how(absl::StrCat("could not be started: ", std::string(process.status().message())));
    metrics_.RankEnded(key.first, key.second);
    Forget(key, std::move(ended));
    return;
  }
  v1::WorkerEvent event;
  event.set_attempt(key.first);
  event.set_rank(key.second);
  event.mutable_spawned()->set_pid((*process)->pid());
  outbox_.Push(std::move(event));
  v1::ToRank start;
  *start.mutable_start() = command.start();
  start.mutable_start()->set_threads(config_.threads);
  start.mutable_start()->set_address(config_.address);
  // A rank that is gone already says so by its exit.
  (*process)->Send(start).IgnoreError();
  MutexLock lock(mutex_);
  ranks_[key].process = *std::move(process);
}

/// A rank that has no process and gets none.
void Supervisor::Forget(const Key& key, v1::RankEnded ended) {
  PushEnd(key, std::move(ended));
  MutexLock lock(mutex_);
  ranks_.erase(key);
  changed_.NotifyAll();
}

void Supervisor::DoStop(const v1::StopRank& command) {
  const Key key(command.attempt(), command.rank());
  MutexLock lock(mutex_);
  const auto found = ranks_.find(key);
  if (found == ranks_.end()) {
    v1::RankEnded ended;
    ended.set_stopped(true);
    ended.set_how("was not there any more");
    PushEnd(key, std::move(ended));
    return;
  }
  Rank& rank = found->second;
  if (rank.stop_asked || rank.exit.has_value()) return;
  rank.stop_asked = true;
  if (rank.process == nullptr) {
    rank.look_at = clock_.Now();
  } else if (command.dump()) {
    rank.kill_at = clock_.Now() + config_.dump_grace;
    rank.process->Dump();
  } else {
    rank.kill_at = clock_.Now() + config_.stop_grace;
    rank.process->Interrupt();
  }
}

void Supervisor::DoInterrupt(const v1::InterruptRank& command) {
  MutexLock lock(mutex_);
  const auto found = ranks_.find({command.attempt(), command.rank()});
  if (found != ranks_.end()) LetLeave(found->second);  // its end is told otherwise
}

void Supervisor::LetLeave(Rank& rank) {
  if (rank.stop_asked || rank.leave_asked || rank.exit.has_value()) return;
  rank.leave_asked = true;
  if (rank.process == nullptr) {
    rank.look_at = clock_.Now();
    return;
  }
  rank.kill_at = clock_.Now() + config_.checkpoint_grace;
  rank.process->Terminate();
}

void Supervisor::DoDeliver(const v1::RankValue& command) {
  MutexLock lock(mutex_);
  const auto found = ranks_.find({command.attempt(), command.rank()});
  if (found == ranks_.end() || found->second.asked.erase(command.value().key()) == 0) return;
  v1::ToRank message;
  *message.mutable_value() = command.value();
  // A rank that is gone needs no value, and one that hangs is found out by its time-outs.
  found->second.process->Send(message).IgnoreError();
}

void Supervisor::DoTrace(const v1::TraceRank& command) {
  MutexLock lock(mutex_);
  const auto found = ranks_.find({command.attempt(), command.rank()});
  if (found == ranks_.end() || found->second.process == nullptr)
    return;  // nothing is traced, and that is noticed
  v1::ToRank message;
  *message.mutable_trace() = command.order();
  found->second.process->Send(message).IgnoreError();
}

void Supervisor::AskAgain() {
  MutexLock lock(mutex_);
  for (const auto& [key, rank] : ranks_) {
    for (const std::string& name : rank.asked) {
      v1::WorkerEvent event;
      event.set_attempt(key.first);
      event.set_rank(key.second);
      event.mutable_get()->set_key(name);
      outbox_.Push(std::move(event));
    }
  }
}

void Supervisor::OnMessage(const Key& key, const v1::FromRank& message) {
  v1::WorkerEvent event;
  event.set_attempt(key.first);
  event.set_rank(key.second);
  switch (message.kind_case()) {
    case v1::FromRank::kStarted:
      event.mutable_started()->set_description(message.started());
      break;
    case v1::FromRank::kPut:
      *event.mutable_put() = message.put();
      break;
    case v1::FromRank::kGet: {
      *event.mutable_get() = message.get();
      MutexLock lock(mutex_);
      const auto found = ranks_.find(key);
      if (found != ranks_.end()) found->second.asked.insert(message.get().key());
      break;
    }
    case v1::FromRank::kCheckpoint:
      *event.mutable_checkpoint() = message.checkpoint();
      break;
    case v1::FromRank::kLink:
      *event.mutable_link() = message.link();
      break;
    case v1::FromRank::kStep:
      *event.mutable_step() = message.step();
      event.mutable_step()->set_rank(key.second);
      metrics_.Observe(key.first, event.step());
      break;
    case v1::FromRank::kTrace:
      *event.mutable_trace() = message.trace();
      event.mutable_trace()->set_rank(key.second);
      break;
    case v1::FromRank::kResult: {
      MutexLock lock(mutex_);
      const auto found = ranks_.find(key);
      if (found != ranks_.end()) found->second.result = message.result();
      return;  // told with its end
    }
    case v1::FromRank::kHello:
    case v1::FromRank::KIND_NOT_SET:
      return;
  }
  outbox_.Push(std::move(event));
}

void Supervisor::OnExit(const Key& key, const RankExit& exit) {
  {
    MutexLock lock(mutex_);
    const auto found = ranks_.find(key);
    if (found == ranks_.end()) return;
    found->second.exit = exit;
    found->second.look_at = clock_.Now();
    found->second.give_up_at = found->second.look_at + config_.gpu_memory_wait;
  }
  changed_.NotifyAll();
}

/// `memory`: whether the device's is free.
void Supervisor::Bury(const Key& key, const absl::Status& memory) {
  v1::RankEnded ended;
  {
    MutexLock lock(mutex_);
    ended = Describe(ranks_.at(key));
  }
  if (gpu_ != nullptr) AddDeviceErrors(memory, ended);  // outside the lock: waits for the driver's word
  std::unique_ptr<RankProcess> gone;  // its destructor joins the process's thread: outside the lock
  MutexLock lock(mutex_);
  metrics_.RankEnded(key.first, key.second);
  PushEnd(key, std::move(ended));
  gone = std::move(ranks_.at(key).process);
  ranks_.erase(key);
  changed_.NotifyAll();
}

v1::RankEnded Supervisor::Describe(const Rank& rank) const {
  v1::RankEnded ended;
  const RankExit& exit = *rank.exit;
  if (rank.result.has_value()) *ended.mutable_result() = *rank.result;
  ended.set_clean(exit.clean());
  ended.set_how(exit.Describe());
  // An end that our signals do not explain is the rank's own, although it had been asked to end.
  const bool ours = exit.signal == 0 || (exit.signal == SIGINT && rank.stop_asked) ||
                    (exit.signal == SIGTERM && rank.leave_asked) || (exit.signal == SIGKILL && rank.killed);
  ended.set_stopped(rank.stop_asked && ours);
  ended.set_left(rank.leave_asked && !rank.stop_asked && ours);
  if (ended.left() && rank.killed)
    ended.set_how(absl::StrCat("asked to leave, and ", exit.Describe(), " after the grace"));
  if (exit.signal == SIGKILL && !rank.killed && KillsForMemory() > rank.kills_before)
    ended.set_how(absl::StrCat(exit.Describe(), "; meanwhile the kernel has killed for want of memory"));
  return ended;
}

void Supervisor::AddDeviceErrors(const absl::Status& memory, v1::RankEnded& ended) const {
  if (!ended.clean()) {
    // Where our signals explain the end there need not be anything to wait for.
    const bool ours = ended.stopped() || ended.left();
    const std::string errors = gpu_->TakeErrors(ours ? std::chrono::milliseconds(0) : config_.gpu_error_wait);
    if (!errors.empty()) Append(errors, ended);
  }
  if (absl::IsResourceExhausted(memory)) Append(std::string(memory.message()), ended);
}

void Supervisor::PushEnd(const Key& key, v1::RankEnded ended) {
  v1::WorkerEvent event;
  event.set_attempt(key.first);
  event.set_rank(key.second);
  *event.mutable_ended() = std::move(ended);
  outbox_.Push(std::move(event));
}

std::optional<Clock::Time> Supervisor::NextDue() const {
  std::optional<Clock::Time> next;
  const auto consider = [&](Clock::Time time) { next = next.has_value() ? std::min(*next, time) : time; };
  for (const auto& [key, rank] : ranks_) {
    if (rank.waiting.has_value() || rank.exit.has_value()) {
      consider(rank.look_at);
    } else if (!rank.killed && rank.kill_at.has_value()) {
      consider(*rank.kill_at);
    }
  }
  return next;
}

void Supervisor::KillOverdue() {
  MutexLock lock(mutex_);
  const Clock::Time now = clock_.Now();
  for (auto& [key, rank] : ranks_) {
    if (rank.killed || rank.exit.has_value() || !rank.kill_at.has_value() || *rank.kill_at > now) continue;
    rank.killed = true;
    rank.process->Kill();
  }
}

std::vector<v1::RankKey> Supervisor::Ranks() const {
  MutexLock lock(mutex_);
  std::vector<v1::RankKey> keys;
  for (const auto& [key, rank] : ranks_) {
    keys.emplace_back();
    keys.back().set_attempt(key.first);
    keys.back().set_rank(key.second);
  }
  return keys;
}

void Supervisor::LetAllLeave() {
  MutexLock lock(mutex_);
  leaving_ = true;
  for (auto& [key, rank] : ranks_) LetLeave(rank);
  changed_.NotifyAll();
}

void Supervisor::Leave() {
  Post([this] { LetAllLeave(); });
  MutexLock lock(mutex_);
  while (!leaving_ || !ranks_.empty()) changed_.Wait(mutex_);
}

}  // namespace metp
