#include "worker/daemon/session.h"

#include <algorithm>
#include <optional>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "metp/v1/worker_service.grpc.pb.h"

namespace metp {
namespace {

std::shared_ptr<grpc::Channel> Dial(const WorkerConfig& config) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, static_cast<int>(config.last_backoff.count()));
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, static_cast<int>(config.first_backoff.count()));
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, static_cast<int>(config.first_backoff.count()));
  return grpc::CreateCustomChannel(config.coordinator, grpc::InsecureChannelCredentials(), arguments);
}

}  // namespace

/// One open call. The hold keeps it usable from outside gRPC's callbacks until the read side ends.
class Session::Call final : public grpc::ClientBidiReactor<v1::FromWorker, v1::ToWorker> {
 public:
  Call(Session& session, v1::WorkerService::Stub& stub, const v1::WorkerHello& hello) : session_(session) {
    *outgoing_.mutable_hello() = hello;
    last_heard_ = session_.clock_.Now();
    stub.async()->Session(&context_, this);
    AddHold();
    writing_ = true;
    StartWrite(&outgoing_);
    StartRead(&incoming_);
    StartCall();
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      {
        MutexLock lock(mutex_);
        over_ = true;
      }
      RemoveHold();
      return;
    }
    bool welcomed = false;
    {
      MutexLock lock(mutex_);
      last_heard_ = session_.clock_.Now();
      if (incoming_.has_welcome()) {
        session_.outbox_.Rewind(incoming_.welcome().acknowledged());
        welcomed = welcomed_ = true;
      }
    }
    if (welcomed) {
      {
        MutexLock lock(session_.mutex_);
        session_.was_welcomed_ = true;
      }
      session_.callbacks_.welcomed();
    } else if (incoming_.has_ack()) {
      session_.outbox_.Acknowledge(incoming_.ack().acknowledged());
      session_.Wake();
    } else {
      session_.callbacks_.command(std::move(incoming_));
    }
    incoming_.Clear();
    StartRead(&incoming_);
    Pump();
  }
  void OnWriteDone(bool ok) override {
    {
      MutexLock lock(mutex_);
      writing_ = false;
      if (!ok) over_ = true;
    }
    Pump();
  }
  void OnDone(const grpc::Status& status) override {
    {
      MutexLock lock(mutex_);
      over_ = true;
      status_ = status;
    }
    // The session's thread may take this call apart as soon as it has the lock: the last touch is inside.
    MutexLock lock(session_.mutex_);
    session_.call_done_ = true;
    session_.changed_.NotifyAll();
  }

  /// Writes the next thing due, if nothing is being written.
  void Pump() METP_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    if (over_ || writing_ || !welcomed_ || said_leave_) return;
    outgoing_.Clear();
    v1::WorkerEvents events = session_.outbox_.Next(session_.config_.batch_bytes);
    if (events.events_size() > 0) {
      *outgoing_.mutable_events() = std::move(events);
    } else if (heartbeat_due_) {
      outgoing_.mutable_heartbeat();
    } else if (leave_due_) {
      outgoing_.mutable_leave();
      said_leave_ = true;
    } else {
      return;
    }
    heartbeat_due_ = false;
    writing_ = true;
    if (said_leave_) {
      StartWriteLast(&outgoing_, grpc::WriteOptions());
    } else {
      StartWrite(&outgoing_);
    }
  }
  void Heartbeat() {
    {
      MutexLock lock(mutex_);
      heartbeat_due_ = true;
    }
    Pump();
  }
  void SayLeave() {
    {
      MutexLock lock(mutex_);
      leave_due_ = true;
    }
    Pump();
  }
  void Cancel() { context_.TryCancel(); }

  Clock::Time last_heard() const {
    MutexLock lock(mutex_);
    return last_heard_;
  }
  grpc::Status status() const {
    MutexLock lock(mutex_);
    return status_;
  }

 private:
  Session& session_;
  grpc::ClientContext context_;
  v1::ToWorker incoming_;  // of the one read in progress
  mutable Mutex mutex_;
  v1::FromWorker outgoing_;  // of the one write in progress
  bool writing_ METP_GUARDED_BY(mutex_) = false;
  bool welcomed_ METP_GUARDED_BY(mutex_) = false;
  bool heartbeat_due_ METP_GUARDED_BY(mutex_) = false;
  bool leave_due_ METP_GUARDED_BY(mutex_) = false;
  bool said_leave_ METP_GUARDED_BY(mutex_) = false;
  bool over_ METP_GUARDED_BY(mutex_) = false;  // nothing may be started any more
  Clock::Time last_heard_ METP_GUARDED_BY(mutex_);
  grpc::Status status_ METP_GUARDED_BY(mutex_);
};

Session::Session(const WorkerConfig& config, const Clock& clock, Outbox& outbox, SessionCallbacks callbacks)
    : config_(config), clock_(clock), outbox_(outbox), callbacks_(std::move(callbacks)) {
  outbox_.SetListener([this] {
    std::shared_ptr<Call> call;
    {
      MutexLock lock(mutex_);
      call = call_;
    }
    if (call != nullptr) call->Pump();
  });
}

Session::~Session() {
  {
    MutexLock lock(mutex_);
    quit_ = true;
  }
  changed_.NotifyAll();
  if (thread_.joinable()) thread_.join();
}

void Session::Start() {
  thread_ = std::thread([this] { Run(); });
}

void Session::Wake() {
  {
    MutexLock lock(mutex_);  // so that a waiter is not between its test and its wait
  }
  changed_.NotifyAll();
}

void Session::Leave() {
  {
    MutexLock lock(mutex_);
    leave_ = true;
  }
  changed_.NotifyAll();
  if (thread_.joinable()) thread_.join();
}

std::string Session::RunOnce() {
  const std::unique_ptr<v1::WorkerService::Stub> stub = v1::WorkerService::NewStub(Dial(config_));
  const v1::WorkerHello hello = callbacks_.hello();
  {
    MutexLock lock(mutex_);
    call_done_ = false;
  }
  const auto call = std::make_shared<Call>(*this, *stub, hello);
  {
    MutexLock lock(mutex_);
    call_ = call;
  }
  Clock::Time next = clock_.Now() + config_.heartbeat;
  std::optional<Clock::Time> leave_until;
  bool cancelled = false, silent = false;
  while (true) {
    bool leave = false;
    {
      MutexLock lock(mutex_);
      const bool news = call_done_ || (quit_ && !cancelled) || (leave_ && !leave_until.has_value());
      if (!news && clock_.Now() < next) changed_.WaitUntil(mutex_, next);
      if (call_done_) {
        call_ = nullptr;
        break;
      }
      leave = leave_;
      if (quit_ && !cancelled) {
        cancelled = true;
        call->Cancel();
      }
    }
    const Clock::Time now = clock_.Now();
    if (leave) {
      if (!leave_until.has_value()) leave_until = now + config_.leave_grace;
      if (outbox_.empty()) call->SayLeave();
    }
    silent = now - call->last_heard() > config_.coordinator_silence;
    if (!cancelled && (silent || (leave_until.has_value() && now > *leave_until))) {
      cancelled = true;
      call->Cancel();
    }
    if (now >= next) {
      next = now + config_.heartbeat;
      call->Heartbeat();
    }
  }
  if (silent) return absl::StrCat("the coordinator at ", config_.coordinator, " has fallen silent");
  const grpc::Status status = call->status();
  return status.ok() ? "the coordinator ended the session" : status.error_message();
}

void Session::Run() {
  std::mt19937 random(std::random_device{}());
  auto backoff = config_.first_backoff;
  while (true) {
    {
      MutexLock lock(mutex_);
      was_welcomed_ = false;
    }
    const std::string why = RunOnce();
    callbacks_.disconnected(why);
    MutexLock lock(mutex_);
    backoff = was_welcomed_ ? config_.first_backoff : std::min(backoff * 2, config_.last_backoff);
    const auto wait = backoff - std::chrono::milliseconds(random() % (backoff.count() / 2 + 1));
    const Clock::Time until = clock_.Now() + wait;
    while (!quit_ && !leave_ && clock_.Now() < until) changed_.WaitUntil(mutex_, until);
    if (quit_ || leave_) return;
  }
}

}  // namespace metp
