#pragma once

// A rank's end of the link to its supervisor. RankLink owns the Channel and the one thread that reads it: it
// hands the start order and the rendezvous values to whoever waits for them, trace orders to a callback, and says when the supervisor's
// end has closed, which a rank must not survive. ChannelRendezvous is the Rendezvous that communicators are
// given, over a RankLink.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "metp/v1/rank.pb.h"
#include "proto/support/mutex.h"
#include "worker/comm/communicator.h"
#include "worker/rank/channel.h"

namespace metp {

class RankLink {
 public:
  /// Takes over `fd` and starts reading. `on_lost` runs once on the reading thread when the supervisor's end
  /// closes or breaks (never because of the destructor); a rank's main ends the process there. `on_trace` runs there too.
  RankLink(int fd, std::function<void(const absl::Status&)> on_lost,
           std::function<void(const v1::TraceOrder&)> on_trace = {});
  /// Not from on_lost.
  ~RankLink();

  /// Any thread.
  absl::Status Send(const v1::FromRank& message) { return channel_.Send(message); }
  /// Blocks until the supervisor has sent the start order. DeadlineExceeded; Unavailable: its end closed.
  absl::StatusOr<v1::RankStart> AwaitStart(std::chrono::milliseconds timeout);
  /// Asks for a rendezvous key and blocks for its value. DeadlineExceeded naming the key; Unavailable.
  absl::StatusOr<std::string> AwaitValue(const std::string& key, std::chrono::milliseconds timeout);

 private:
  void Read();
  /// Waits for `ready`, which `what` names.
  absl::Status WaitUntil(const std::function<bool()>& ready, std::chrono::milliseconds timeout,
                         const std::string& what) METP_REQUIRES(mutex_);

  Channel channel_;
  const std::function<void(const absl::Status&)> on_lost_;
  const std::function<void(const v1::TraceOrder&)> on_trace_;

  Mutex mutex_;
  CondVar changed_;
  std::optional<v1::RankStart> start_ METP_GUARDED_BY(mutex_);
  std::map<std::string, std::string> values_ METP_GUARDED_BY(mutex_);
  absl::Status lost_ METP_GUARDED_BY(mutex_);
  bool leaving_ METP_GUARDED_BY(mutex_) = false;

  std::thread reader_;
};

class ChannelRendezvous final : public Rendezvous {
 public:
  /// `link` must outlive it.
  explicit ChannelRendezvous(RankLink& link) : link_(link) {}
  absl::Status Put(const std::string& key, const std::string& value) override;
  absl::StatusOr<std::string> Get(const std::string& key, std::chrono::milliseconds timeout) override {
    return link_.AwaitValue(key, timeout);
  }

 private:
  RankLink& link_;
};

}  // namespace metp
