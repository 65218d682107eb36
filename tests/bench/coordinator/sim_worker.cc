#include "tests/bench/coordinator/sim_worker.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "grpcpp/client_context.h"
#include "proto/support/ids.h"
#include "proto/support/version.h"
#include "worker/daemon/config.h"
#include "worker/ring/passes.h"
#include "worker/telemetry/ledger.h"

namespace metp::bench {
namespace {

constexpr std::chrono::seconds kStep{1};
constexpr int kWorkersPerNode = 8;

Time Now() { return std::chrono::steady_clock::now(); }

/// With every pass and category that a real rank reports, so that it is as long.
v1::StepReport SampleReport() {
  v1::StepReport report;
  report.set_learning_rate(3e-4);
  report.set_tokens(131072);
  report.set_model_flops(1.37e15);
  for (int i = 0; i < kPasses; ++i) {
    v1::PassTimes& times = (*report.mutable_passes())[std::string(PassName(static_cast<Pass>(i)))];
    times.set_compute_seconds(0.0731 + i * 1e-3);
    times.set_communication_seconds(0.0413);
    times.set_exposed_seconds(0.0017);
    times.set_skew_seconds(0.0009);
    times.set_hops(224);
    times.set_exposed_hops(3);
  }
  for (int i = 0; i < kMemoryCategories; ++i) {
    const std::string name(MemoryCategoryName(static_cast<MemoryCategory>(i)));
    (*report.mutable_current_bytes())[name] = int64_t{3} << 30;
    (*report.mutable_peak_bytes_by_category())[name] = int64_t{5} << 30;
  }
  (*report.mutable_peak_bytes_by_tag())["scores"] = int64_t{1} << 30;
  report.set_peak_bytes(int64_t{35} << 30);
  report.mutable_host()->set_copy_seconds(0.01);
  return report;
}

}  // namespace

/// One session. The hold keeps it usable from outside gRPC's callbacks until the read side ends.
class SimWorker::Call final : public grpc::ClientBidiReactor<v1::FromWorker, v1::ToWorker> {
 public:
  Call(SimWorker& worker, const v1::WorkerHello& hello) : worker_(worker) {
    *outgoing_.mutable_hello() = hello;
    worker_.stub_.async()->Session(&context_, this);
    AddHold();
    writing_ = true;
    StartWrite(&outgoing_);
    StartRead(&incoming_);
  }
  /// Apart from the constructor, since the first callback may come at once.
  void Begin() { StartCall(); }
  void Cancel() { context_.TryCancel(); }

  void OnReadDone(bool ok) override {
    if (!ok) {
      {
        MutexLock lock(mutex_);
        over_ = true;
      }
      RemoveHold();
      return;
    }
    if (incoming_.has_welcome()) {
      worker_.Welcomed(incoming_.welcome().acknowledged());
    } else if (incoming_.has_ack()) {
      worker_.Acknowledged(incoming_.ack().acknowledged());
    } else if (incoming_.has_start()) {
      worker_.Start(incoming_.start().start());
    } else if (incoming_.has_stop()) {
      worker_.Stop(incoming_.stop());
    }
    incoming_.Clear();
    StartRead(&incoming_);
    Pump(false);
  }
  void OnWriteDone(bool ok) override {
    {
      MutexLock lock(mutex_);
      writing_ = false;
      if (!ok) over_ = true;
    }
    Pump(false);
  }
  void OnDone(const grpc::Status& status) override { worker_.Over(status); }

  void Pump(bool heartbeat) METP_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    heartbeat_due_ = heartbeat_due_ || heartbeat;
    if (over_ || writing_ || !worker_.Next(heartbeat_due_, outgoing_)) return;
    writing_ = true;
    StartWrite(&outgoing_);
  }

 private:
  SimWorker& worker_;
  grpc::ClientContext context_;
  v1::ToWorker incoming_;  // of the one read in progress
  Mutex mutex_;            // taken before the worker's
  v1::FromWorker outgoing_;
  bool writing_ METP_GUARDED_BY(mutex_) = false;
  bool heartbeat_due_ METP_GUARDED_BY(mutex_) = false;
  bool over_ METP_GUARDED_BY(mutex_) = false;  // nothing may be started any more
};

SimWorker::SimWorker(int number, v1::WorkerService::Stub& stub, Surroundings& surroundings)
    : number_(number), stub_(stub), surroundings_(surroundings), outbox_(WorkerConfig().outbox_bytes) {
  hello_.set_name(absl::StrCat("w-", number));
  hello_.set_incarnation(RandomHex(16));
  hello_.set_address("127.0.0.1");
  hello_.set_metrics_url(absl::StrCat("http://127.0.0.1:", 20000 + number));
  hello_.set_device("cpu");
  hello_.set_threads(8);
  hello_.set_memory_bytes(int64_t{80} << 30);
  hello_.set_version(kVersion);
  hello_.set_pid(1000 + number);
  hello_.set_node(absl::StrCat("node-", number / kWorkersPerNode));
}

SimWorker::~SimWorker() = default;

void SimWorker::Dial() {
  std::shared_ptr<Call> call;
  {
    MutexLock lock(mutex_);
    v1::WorkerHello hello = hello_;
    for (const auto& [attempt, rank] : ranks_) {
      v1::RankKey& key = *hello.add_ranks();
      key.set_attempt(attempt);
      key.set_rank(rank.rank);
    }
    for (v1::RankKey& key : outbox_.Ended()) *hello.add_ranks() = std::move(key);
    welcomed_ = false;
    call_ = call = std::make_shared<Call>(*this, hello);
  }
  call->Begin();
}

void SimWorker::Beat() {
  std::shared_ptr<Call> call;
  {
    MutexLock lock(mutex_);
    call = call_;
  }
  if (call != nullptr) call->Pump(true);
}

void SimWorker::Pump() {
  std::shared_ptr<Call> call;
  {
    MutexLock lock(mutex_);
    call = call_;
  }
  if (call != nullptr) call->Pump(false);
}

bool SimWorker::Next(bool& heartbeat_due, v1::FromWorker& message) {
  MutexLock lock(mutex_);
  if (!welcomed_ || silent_) return false;
  v1::WorkerEvents events = outbox_.Next(WorkerConfig().batch_bytes);
  if (events.events_size() == 0 && !heartbeat_due) return false;
  message.Clear();
  if (events.events_size() > 0) {
    *message.mutable_events() = std::move(events);
  } else {
    message.mutable_heartbeat();
  }
  heartbeat_due = false;
  last_said_ = Now();
  return true;
}

std::optional<Time> SimWorker::Step(Time now, int& made) {
  static const v1::StepReport kSample = SampleReport();
  std::optional<Time> next;
  {
    MutexLock lock(mutex_);
    for (auto& [attempt, rank] : ranks_) {
      while (rank.next <= now) {
        v1::WorkerEvent event;
        event.set_attempt(attempt);
        event.set_rank(rank.rank);
        v1::StepReport& report = *event.mutable_step();
        report = kSample;
        report.set_rank(rank.rank);
        report.set_step(++rank.step);
        report.set_loss(4 + 6 / std::sqrt(rank.step));
        report.set_grad_norm(1 + 1.0 / rank.step);
        report.set_step_seconds(1 + 1e-3 * rank.rank);
        report.set_sent_bytes(int64_t{rank.step} << 30);
        Push(std::move(event));
        ++made;
        rank.next += kStep;
      }
      if (!next || rank.next < *next) next = rank.next;
    }
  }
  Pump();
  return next;
}

void SimWorker::Push(v1::WorkerEvent event) {
  sent_.push_back({++last_sequence_, Now(), event.has_step()});
  outbox_.Push(std::move(event));
}

void SimWorker::Welcomed(int64_t acknowledged) {
  Acknowledged(acknowledged);
  outbox_.Rewind(acknowledged);
  MutexLock lock(mutex_);
  welcomed_ = true;
}

void SimWorker::Acknowledged(int64_t sequence) {
  outbox_.Acknowledge(sequence);
  std::vector<double> after;
  int steps = 0;
  {
    MutexLock lock(mutex_);
    const Time now = Now();
    for (; !sent_.empty() && sent_.front().sequence <= sequence; sent_.pop_front()) {
      after.push_back(std::chrono::duration<double>(now - sent_.front().made).count());
      steps += sent_.front().step ? 1 : 0;
    }
    stepping_ = stepping_ || steps > 0;
  }
  if (!after.empty()) surroundings_.Acknowledged(after, steps);
}

void SimWorker::Start(const v1::RankStart& start) {
  const Time first = surroundings_.FirstStep(start.attempt());
  {
    MutexLock lock(mutex_);
    const auto [entry, fresh] = ranks_.try_emplace(start.attempt(), Rank{start.rank(), 0, first});
    if (!fresh) return;  // told again
    v1::WorkerEvent event;
    event.set_attempt(start.attempt());
    event.set_rank(start.rank());
    event.mutable_spawned()->set_pid(100000 + number_);
    Push(event);
    event.mutable_started()->set_description(absl::StrCat("rank ", start.rank(), ", simulated"));
    Push(std::move(event));
  }
  surroundings_.StepAt(number_, first);
}

void SimWorker::Stop(const v1::StopRank& stop) {
  MutexLock lock(mutex_);
  v1::WorkerEvent event;
  event.set_attempt(stop.attempt());
  event.set_rank(stop.rank());
  event.mutable_ended()->set_stopped(true);
  event.mutable_ended()->set_how(ranks_.erase(stop.attempt()) > 0 ? "killed by signal 9 (SIGKILL)"
                                                                  : "there was no such rank");
  Push(std::move(event));
}

void SimWorker::Over(const grpc::Status& status) {
  std::shared_ptr<Call> last;
  {
    MutexLock lock(mutex_);
    last = std::move(call_);
    welcomed_ = false;
  }
  surroundings_.SessionOver(number_, status);
}

Time SimWorker::Silence() {
  MutexLock lock(mutex_);
  silent_ = true;
  return last_said_;
}

void SimWorker::Cancel() {
  std::shared_ptr<Call> call;
  {
    MutexLock lock(mutex_);
    call = call_;
  }
  if (call != nullptr) call->Cancel();
}

bool SimWorker::silent() const {
  MutexLock lock(mutex_);
  return silent_;
}
bool SimWorker::welcomed() const {
  MutexLock lock(mutex_);
  return welcomed_;
}
bool SimWorker::stepping() const {
  MutexLock lock(mutex_);
  return stepping_;
}
void SimWorker::ForgetSteps() {
  MutexLock lock(mutex_);
  stepping_ = false;
}

}  // namespace metp::bench
