#include "tests/bench/coordinator/fleet.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "grpcpp/channel.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "worker/daemon/config.h"

namespace metp::bench {
namespace {

constexpr std::chrono::milliseconds kSpread{1000};  // over which first dials and jobs' steps are spread
constexpr std::chrono::milliseconds kDiallerBackoff{100};
constexpr std::chrono::milliseconds kTick{1};  // what is due within one is done together

std::shared_ptr<grpc::Channel> Connect(const std::string& coordinator) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // a connection of its own
  const int backoff = static_cast<int>(kDiallerBackoff.count());
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, backoff);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, backoff);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, backoff);
  return grpc::CreateCustomChannel(coordinator, grpc::InsecureChannelCredentials(), arguments);
}

Time Now() { return std::chrono::steady_clock::now(); }

}  // namespace

Fleet::Fleet(const std::string& coordinator, int workers, int connections) {
  for (int i = 0; i < connections; ++i) stubs_.push_back(v1::WorkerService::NewStub(Connect(coordinator)));
  for (int i = 0; i < workers; ++i)
    workers_.push_back(std::make_unique<SimWorker>(i, *stubs_[static_cast<size_t>(i % connections)], *this));
  {
    MutexLock lock(mutex_);
    for (int i = 0; i < workers; ++i) {
      const Time dial = Soon(kSpread);
      due_.push({dial, i, Act::kDial});
      due_.push({dial + WorkerConfig().heartbeat, i, Act::kBeat});
    }
  }
  clock_ = std::thread([this] { Run(); });
}

Fleet::~Fleet() {
  {
    MutexLock lock(mutex_);
    quit_ = true;
  }
  changed_.NotifyAll();
  clock_.join();
  for (const auto& worker : workers_) worker->Cancel();
  MutexLock lock(mutex_);
  while (sessions_ > 0) changed_.Wait(mutex_);
}

Time Fleet::Soon(std::chrono::milliseconds within) {
  return Now() + std::chrono::milliseconds(random_() % static_cast<unsigned>(within.count()));
}

void Fleet::Run() {
  std::vector<Due> now_due;
  while (true) {
    Time now;
    {
      MutexLock lock(mutex_);
      if (quit_) return;
      now = Now();
      now_due.clear();
      for (; !due_.empty() && due_.top().at <= now + kTick; due_.pop()) now_due.push_back(due_.top());
      if (now_due.empty()) changed_.WaitUntil(mutex_, due_.empty() ? now + kSpread : due_.top().at);
    }
    for (const Due& due : now_due) Do(due, now + kTick);
  }
}

void Fleet::Do(const Due& due, Time now) {
  SimWorker& worker = *workers_[static_cast<size_t>(due.worker)];
  switch (due.act) {
    case Act::kDial: {
      {
        MutexLock lock(mutex_);
        ++sessions_;
      }
      worker.Dial();
      break;
    }
    case Act::kBeat:
      worker.Beat();
      Add({due.at + WorkerConfig().heartbeat, due.worker, Act::kBeat});
      break;
    case Act::kStep: {
      int made = 0;
      const std::optional<Time> next = worker.Step(now, made);
      if (next) Add({*next, due.worker, Act::kStep});
      MutexLock lock(mutex_);
      if (window_open_) window_.made += made;
      break;
    }
  }
}

void Fleet::Add(const Due& due) {
  {
    MutexLock lock(mutex_);
    due_.push(due);
  }
  changed_.NotifyAll();
}

Time Fleet::FirstStep(const std::string& attempt) {
  MutexLock lock(mutex_);
  const auto [entry, fresh] = first_steps_.try_emplace(attempt);
  if (fresh) entry->second = Soon(kSpread) + kSpread;
  return entry->second;
}

void Fleet::StepAt(int worker, Time due) { Add({due, worker, Act::kStep}); }

void Fleet::Acknowledged(const std::vector<double>& after, int steps) {
  MutexLock lock(mutex_);
  if (!window_open_) return;
  window_.taken += steps;
  window_.ack_seconds.insert(window_.ack_seconds.end(), after.begin(), after.end());
}

void Fleet::SessionOver(int number, const grpc::Status& status) {
  const SimWorker& worker = *workers_[static_cast<size_t>(number)];
  const bool wanted = worker.silent();
  // The fleet may be taken apart as soon as it has the lock: the last touch is inside.
  MutexLock lock(mutex_);
  --sessions_;
  if (!quit_ && !wanted) {
    if (!breaks_allowed_ && failure_.empty()) {
      failure_ = absl::StrCat("the session of worker ", worker.name(), " has ended: ", status.error_message(),
                              " (code ", static_cast<int>(status.error_code()), ")");
    }
    due_.push({Soon(WorkerConfig().first_backoff) + WorkerConfig().first_backoff, number, Act::kDial});
  }
  changed_.NotifyAll();
}

void Fleet::BeginWindow() {
  MutexLock lock(mutex_);
  window_ = Window();
  window_open_ = true;
}

Fleet::Window Fleet::EndWindow() {
  MutexLock lock(mutex_);
  window_open_ = false;
  return std::move(window_);
}

int Fleet::Count(bool (SimWorker::*holds)() const) const {
  return static_cast<int>(std::count_if(workers_.begin(), workers_.end(),
                                        [holds](const auto& worker) { return ((*worker).*holds)(); }));
}

void Fleet::ForgetSteps() {
  for (const auto& worker : workers_) worker->ForgetSteps();
}

void Fleet::AllowBreaks() {
  MutexLock lock(mutex_);
  breaks_allowed_ = true;
}

std::string Fleet::failure() const {
  MutexLock lock(mutex_);
  return failure_;
}

}  // namespace metp::bench
