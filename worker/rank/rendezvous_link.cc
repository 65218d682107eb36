#include "worker/rank/rendezvous_link.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/status_macros.h"

namespace metp {

RankLink::RankLink(int fd, std::function<void(const absl::Status&)> on_lost,
                   std::function<void(const v1::TraceOrder&)> on_trace)
    : channel_(fd), on_lost_(std::move(on_lost)), on_trace_(std::move(on_trace)) {
  reader_ = std::thread([this] { Read(); });
}

RankLink::~RankLink() {
  {
    MutexLock lock(mutex_);
    leaving_ = true;
  }
  channel_.Shutdown();
  reader_.join();
}

void RankLink::Read() {
  absl::Status lost;
  while (lost.ok()) {
    v1::ToRank message;
    const absl::StatusOr<bool> received = channel_.Receive(&message);
    MutexLock lock(mutex_);
    if (!received.ok()) {
      lost = received.status();
    } else if (!*received) {
      lost = absl::UnavailableError("the supervisor's end of the link has closed");
    } else if (message.has_start()) {
      start_ = std::move(*message.mutable_start());
    } else if (message.has_value()) {
      values_[message.value().key()] = message.value().value();
    } else if (message.has_trace() && on_trace_) {
      on_trace_(message.trace());
    }
    if (!lost.ok()) lost_ = lost;
    changed_.NotifyAll();
  }
  {
    MutexLock lock(mutex_);
    if (leaving_) return;
  }
  if (on_lost_) on_lost_(lost);
}

absl::Status RankLink::WaitUntil(const std::function<bool()>& ready, std::chrono::milliseconds timeout,
                                 const std::string& what) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (!ready()) {
    METP_RETURN_IF_ERROR(lost_);
    if (!changed_.WaitUntil(mutex_, deadline) && std::chrono::steady_clock::now() >= deadline && !ready()) {
      return absl::DeadlineExceededError(
          absl::StrCat("the supervisor sent no ", what, " in ", timeout.count(), " ms"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::RankStart> RankLink::AwaitStart(std::chrono::milliseconds timeout) {
  MutexLock lock(mutex_);
  METP_RETURN_IF_ERROR(
      WaitUntil([this]() METP_REQUIRES(mutex_) { return start_.has_value(); }, timeout, "start order"));
  return *start_;
}

absl::StatusOr<std::string> RankLink::AwaitValue(const std::string& key, std::chrono::milliseconds timeout) {
  v1::FromRank get;
  get.mutable_get()->set_key(key);
  METP_RETURN_IF_ERROR(Send(get));
  MutexLock lock(mutex_);
  METP_RETURN_IF_ERROR(WaitUntil([&]() METP_REQUIRES(mutex_) { return values_.count(key) > 0; }, timeout,
                                 absl::StrCat("value for rendezvous key ", key)));
  return values_.at(key);
}

absl::Status ChannelRendezvous::Put(const std::string& key, const std::string& value) {
  v1::FromRank message;
  message.mutable_put()->set_key(key);
  message.mutable_put()->set_value(value);
  return link_.Send(message);
}

}  // namespace metp
