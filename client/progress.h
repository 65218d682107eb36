#pragma once

// What a watcher sees while a job goes on: a bar on a terminal (stderr), plain lines off it (stdout), JSON
// lines for programs (stdout). Collects the steps for the closing summary.

#include <chrono>
#include <string>
#include <vector>

#include "metp/v1/job_service.pb.h"

namespace metp {

enum class WatchStyle { kBar, kLines, kJson };

class Progress {
 public:
  explicit Progress(WatchStyle style) : style_(style) {}

  void Show(const v1::WatchJobUpdate& update);
  /// Takes the bar off the screen.
  void Clear();

  const v1::JobStatus& status() const { return status_; }
  const std::vector<v1::StepPoint>& steps() const { return steps_; }

 private:
  void ShowState(const v1::JobStatus& status);
  void ShowLine(const v1::StepPoint& point) const;
  void ShowBar();

  const WatchStyle style_;
  v1::JobStatus status_;
  std::vector<v1::StepPoint> steps_;
  std::string last_state_;
  bool bar_shown_ = false;
  std::chrono::steady_clock::time_point last_bar_;
};

}  // namespace metp
