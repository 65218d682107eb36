#pragma once

// A RankProcess together with everything it has told its supervisor, for tests to wait for and to look at.

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "proto/support/mutex.h"
#include "worker/rank/process.h"

namespace metp {

class ObservedRank {
 public:
  explicit ObservedRank(RankCommand command) {
    auto started = RankProcess::Start(std::move(command), {[this](const v1::FromRank& m) { Message(m); },
                                                           [this](std::string_view line) { Line(line); },
                                                           [this](const RankExit& exit) { Exit(exit); }});
    EXPECT_TRUE(started.ok()) << started.status();
    process_ = *std::move(started);
  }

  RankProcess& process() { return *process_; }
  /// The n-th `started` message; blocks until it is there.
  std::string AwaitStarted(size_t n = 0) {
    MutexLock lock(mutex_);
    while (started_.size() <= n && exits_ == 0) changed_.Wait(mutex_);
    return n < started_.size() ? started_[n] : "(exited before)";
  }
  std::string AwaitLine(size_t n = 0) {
    MutexLock lock(mutex_);
    while (lines_.size() <= n && exits_ == 0) changed_.Wait(mutex_);
    return n < lines_.size() ? lines_[n] : "(exited before)";
  }
  v1::FromRank AwaitMessage(size_t n = 0) {
    MutexLock lock(mutex_);
    while (messages_.size() <= n && exits_ == 0) changed_.Wait(mutex_);
    return n < messages_.size() ? messages_[n] : v1::FromRank();
  }
  /// Everything, once it has ended.
  RankExit End() {
    const RankExit exit = process_->Wait();
    MutexLock lock(mutex_);
    EXPECT_EQ(exits_, 1);
    EXPECT_EQ(exit.Describe(), exit_.Describe());
    EXPECT_FALSE(after_exit_);
    return exit;
  }
  std::vector<std::string> lines() {
    MutexLock lock(mutex_);
    return lines_;
  }
  std::vector<std::string> started() {
    MutexLock lock(mutex_);
    return started_;
  }

 private:
  void Message(const v1::FromRank& message) {
    MutexLock lock(mutex_);
    after_exit_ |= exits_ > 0;
    messages_.push_back(message);
    if (message.has_started()) started_.push_back(message.started());
    changed_.NotifyAll();
  }
  void Line(std::string_view line) {
    MutexLock lock(mutex_);
    after_exit_ |= exits_ > 0;
    lines_.emplace_back(line);
    changed_.NotifyAll();
  }
  void Exit(const RankExit& exit) {
    MutexLock lock(mutex_);
    ++exits_;
    exit_ = exit;
    changed_.NotifyAll();
  }

  Mutex mutex_;
  CondVar changed_;
  std::vector<v1::FromRank> messages_ METP_GUARDED_BY(mutex_);
  std::vector<std::string> started_ METP_GUARDED_BY(mutex_), lines_ METP_GUARDED_BY(mutex_);
  int exits_ METP_GUARDED_BY(mutex_) = 0;
  bool after_exit_ METP_GUARDED_BY(mutex_) = false;
  RankExit exit_ METP_GUARDED_BY(mutex_);
  std::unique_ptr<RankProcess> process_;  // last: its thread calls into the rest
};

}  // namespace metp
