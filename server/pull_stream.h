#pragma once

// A server stream that writes as fast as its client reads: whenever the last write is done and there is news,
// it asks its source for the next message. Nothing is queued, so a slow client costs one message. Used by the
// watching calls.

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "grpcpp/support/server_callback.h"
#include "proto/support/grpc_status.h"
#include "proto/support/mutex.h"
#include "server/change_hub.h"

namespace metp {

enum class Pulled { kMessage, kNothingYet, kEnd };

template <typename Message>
class PullStream final : public grpc::ServerWriteReactor<Message>,
                         public std::enable_shared_from_this<PullStream<Message>> {
 public:
  /// Fills the message, or for kEnd the status. Calls of one stream never overlap. Must not block.
  using Source = std::function<Pulled(Message&, absl::Status&)>;

  /// The reactor to return from the handler; it keeps itself until the call is over.
  static PullStream* Start(ChangeHub& changes, const std::string& key, Source source) {
    auto stream = std::make_shared<PullStream>(changes, std::move(source));
    stream->self_ = stream;
    stream->subscription_ = changes.Subscribe(key, [weak = std::weak_ptr<PullStream>(stream)] {
      if (const auto alive = weak.lock()) alive->Pump();
    });
    stream->Pump();
    return stream.get();
  }

  PullStream(const ChangeHub& changes, Source source) : changes_(changes), source_(std::move(source)) {}

  void OnWriteDone(bool ok) override {
    {
      MutexLock lock(mutex_);
      writing_ = false;
      if (!ok) cancelled_ = true;
    }
    Pump();
  }
  void OnCancel() override {
    {
      MutexLock lock(mutex_);
      cancelled_ = true;
    }
    Pump();
  }
  void OnDone() override {
    subscription_.Reset();
    const std::shared_ptr<PullStream> last = std::move(self_);
  }

 private:
  void Pump() METP_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    if (finished_ || writing_) return;
    absl::Status status = absl::CancelledError("the client went away");
    Pulled pulled = Pulled::kEnd;
    if (!cancelled_ && changes_.closed()) {
      status = absl::UnavailableError("the coordinator is stopping");
    } else if (!cancelled_) {
      message_.Clear();
      status = absl::OkStatus();
      pulled = source_(message_, status);
    }
    if (pulled == Pulled::kMessage) {
      writing_ = true;
      this->StartWrite(&message_);
    } else if (pulled == Pulled::kEnd) {
      finished_ = true;
      this->Finish(ToGrpc(status));
    }
  }

  const ChangeHub& changes_;
  const Source source_;
  ChangeHub::Subscription subscription_;
  std::shared_ptr<PullStream> self_;
  Mutex mutex_;
  Message message_ METP_GUARDED_BY(mutex_);
  bool writing_ METP_GUARDED_BY(mutex_) = false;
  bool cancelled_ METP_GUARDED_BY(mutex_) = false;
  bool finished_ METP_GUARDED_BY(mutex_) = false;
};

}  // namespace metp
