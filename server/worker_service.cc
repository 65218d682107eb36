#include "server/worker_service.h"

#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "proto/support/grpc_status.h"
#include "proto/support/mutex.h"

namespace metp {
namespace {

/// One call of Session. Keeps itself until gRPC is done with it. incoming_ and session_ belong to whoever has
/// the one message in hand: gRPC while reading, then the event loop.
class SessionReactor final : public grpc::ServerBidiReactor<v1::FromWorker, v1::ToWorker>,
                             public WorkerLink,
                             public std::enable_shared_from_this<SessionReactor> {
 public:
  static SessionReactor* Start(EventLoop& loop) {
    auto session = std::make_shared<SessionReactor>(loop);
    session->self_ = session;
    session->StartRead(&session->incoming_);
    return session.get();
  }
  explicit SessionReactor(EventLoop& loop) : loop_(loop) {}

  void OnReadDone(bool ok) override {
    if (!ok) {
      Abandon(absl::OkStatus());
      return;
    }
    loop_.Post([self = shared_from_this()](Controller& controller) { self->Handle(controller); });
  }
  void OnWriteDone(bool ok) override {
    MutexLock lock(mutex_);
    writing_ = false;
    outgoing_.pop_front();
    if (!ok) outgoing_.clear();
    WriteOrFinish();
  }
  void OnCancel() override { Abandon(absl::CancelledError("the connection broke")); }
  void OnDone() override {
    loop_.Post([self = std::move(self_)](Controller& controller) {
      if (self->session_.has_value()) controller.Disconnected(*self->session_);
    });
  }

  void Send(v1::ToWorker message) override {
    MutexLock lock(mutex_);
    if (closing_.has_value()) return;
    outgoing_.push_back(std::move(message));
    WriteOrFinish();
  }
  void Close(const absl::Status& status) override {
    MutexLock lock(mutex_);
    if (!closing_.has_value()) closing_ = status;
    WriteOrFinish();
  }

 private:
  void Handle(Controller& controller) {
    absl::Status status;
    if (session_.has_value()) {
      status = controller.Receive(*session_, incoming_);
    } else if (!incoming_.has_hello()) {
      status = absl::InvalidArgumentError("a session begins with Hello");
    } else {
      const absl::StatusOr<Registry::Session> session =
          controller.Connect(incoming_.hello(), shared_from_this());
      if (session.ok()) session_ = *session;
      status = session.status();
    }
    if (!status.ok()) {
      Close(status);
      return;
    }
    MutexLock lock(mutex_);
    if (!finished_) StartRead(&incoming_);
  }

  /// Ends without delivering what is queued.
  void Abandon(const absl::Status& status) {
    MutexLock lock(mutex_);
    if (!closing_.has_value()) closing_ = status;
    while (outgoing_.size() > (writing_ ? 1 : 0)) outgoing_.pop_back();
    WriteOrFinish();
  }

  void WriteOrFinish() METP_REQUIRES(mutex_) {
    if (finished_ || writing_) return;
    if (!outgoing_.empty()) {
      writing_ = true;
      StartWrite(&outgoing_.front());
    } else if (closing_.has_value()) {
      finished_ = true;
      Finish(ToGrpc(*closing_));
    }
  }

  EventLoop& loop_;
  std::shared_ptr<SessionReactor> self_;
  v1::FromWorker incoming_;
  std::optional<Registry::Session> session_;
  Mutex mutex_;
  std::deque<v1::ToWorker> outgoing_ METP_GUARDED_BY(mutex_);
  bool writing_ METP_GUARDED_BY(mutex_) = false;
  bool finished_ METP_GUARDED_BY(mutex_) = false;
  std::optional<absl::Status> closing_ METP_GUARDED_BY(mutex_);
};

}  // namespace

grpc::ServerBidiReactor<v1::FromWorker, v1::ToWorker>* WorkerService::Session(
    grpc::CallbackServerContext* context) {
  return SessionReactor::Start(loop_);
}

}  // namespace metp
