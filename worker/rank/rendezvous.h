#pragma once

// Where the ranks of one attempt leave their addresses for each other. Three parts:
//   LocalRendezvous    ranks are threads of this process
//   ChannelRendezvous  a rank's side, over its link to the supervisor: rendezvous_link.h
//   RendezvousHub      the supervisor's side: the keys of one attempt, no threads and no locks of its own

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/support/mutex.h"
#include "worker/comm/communicator.h"

namespace metp {

/// A part of a rendezvous that several rings share.
class PrefixRendezvous final : public Rendezvous {
 public:
  /// `all` must outlive it.
  PrefixRendezvous(Rendezvous& all, std::string prefix) : all_(all), prefix_(std::move(prefix)) {}
  absl::Status Put(const std::string& key, const std::string& value) override {
    return all_.Put(prefix_ + key, value);
  }
  absl::StatusOr<std::string> Get(const std::string& key, std::chrono::milliseconds timeout) override {
    return all_.Get(prefix_ + key, timeout);
  }

 private:
  Rendezvous& all_;
  const std::string prefix_;
};

/// One key-value space for threads of one process. Any thread.
class LocalRendezvous final : public Rendezvous {
 public:
  /// AlreadyExists when the key holds another value.
  absl::Status Put(const std::string& key, const std::string& value) override;
  /// DeadlineExceeded naming the key; the status given to Close.
  absl::StatusOr<std::string> Get(const std::string& key, std::chrono::milliseconds timeout) override;
  /// Ends every Get that waits or comes later and finds nothing. The first status stays.
  void Close(const absl::Status& status);

 private:
  Mutex mutex_;
  CondVar changed_;
  std::map<std::string, std::string> values_ METP_GUARDED_BY(mutex_);
  absl::Status closed_ METP_GUARDED_BY(mutex_);
};

/// The keys of one attempt, for whoever supervises it. One thread at a time.
class RendezvousHub {
 public:
  using Reply = std::function<void(const std::string& value)>;

  /// Stores the value and answers those who asked for it before. AlreadyExists when the key holds another
  /// value.
  absl::Status Put(const std::string& key, const std::string& value);
  /// Calls `reply` once: now, or from the Put that brings the key, or never if none does.
  void Get(const std::string& key, Reply reply);

 private:
  std::map<std::string, std::string> values_;
  std::map<std::string, std::vector<Reply>> waiting_;
};

}  // namespace metp
