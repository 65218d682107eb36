#include "client/progress.h"

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/format.h"
#include "client/json.h"
#include "client/terminal.h"

namespace metp {
namespace {

constexpr int kLines = 100;  // of plain progress, about
constexpr std::chrono::milliseconds kBarEvery{100};

std::string Numbers(const v1::StepPoint& point) {
  return absl::StrCat("loss ", Short(point.loss()), "  grad ", Short(point.grad_norm()));
}

}  // namespace

void Progress::Show(const v1::WatchJobUpdate& update) {
  status_ = update.status();
  if (style_ != WatchStyle::kJson) ShowState(status_);
  const int total = status_.job().train().steps();
  const int every = std::max(1, total / kLines);
  for (const v1::StepPoint& point : update.steps()) {
    // A new attempt repeats steps.
    while (!steps_.empty() && steps_.back().step() >= point.step()) steps_.pop_back();
    steps_.push_back(point);
    if (style_ == WatchStyle::kJson) {
      std::printf("%s\n", ToJson(point, /*pretty=*/false).c_str());
    } else if (style_ == WatchStyle::kLines &&
               (point.step() % every == 0 || point.step() == 1 || point.step() == total)) {
      ShowLine(point);
    }
  }
  std::fflush(stdout);
  if (style_ == WatchStyle::kBar) ShowBar();
}

void Progress::ShowState(const v1::JobStatus& status) {
  std::string state = v1::JobStatus::State_Name(status.state());
  if (!status.reason().empty()) absl::StrAppend(&state, ", ", status.reason());
  if (state == last_state_) return;
  last_state_ = state;
  Clear();
  std::fprintf(stderr, "%s: %s\n", status.id().c_str(), state.c_str());
}

void Progress::ShowLine(const v1::StepPoint& point) const {
  const double rate =
      point.step_seconds() > 0 ? static_cast<double>(point.tokens()) / point.step_seconds() : 0;
  std::printf("step %d/%d  %s  lr %.3g  %s  %s tokens/s\n", point.step(), status_.job().train().steps(),
              Numbers(point).c_str(), point.learning_rate(), Duration(point.step_seconds()).c_str(),
              Grouped(static_cast<int64_t>(rate)).c_str());
}

void Progress::ShowBar() {
  if (steps_.empty() || status_.state() != v1::JobStatus::RUNNING) return;
  const auto now = std::chrono::steady_clock::now();
  if (bar_shown_ && now - last_bar_ < kBarEvery) return;
  last_bar_ = now;
  const v1::StepPoint& point = steps_.back();
  const int total = status_.job().train().steps();
  double seconds = 0;
  for (const v1::StepPoint& step : steps_) seconds += step.step_seconds();
  const double left = seconds / static_cast<double>(steps_.size()) * (total - point.step());
  const std::string text = absl::StrCat(" ", point.step(), "/", total, "  ", Numbers(point), "  ",
                                        Grouped(static_cast<int64_t>(status_.tokens_per_second())),
                                        " tokens/s  ETA ", Duration(left));
  const int room = std::clamp(TerminalWidth(stderr) - static_cast<int>(text.size()) - 3, 0, 40);
  const int done = total > 0 ? room * point.step() / total : 0;
  const std::string bar =
      room < 5 ? "" : absl::StrCat("[", std::string(done, '#'), std::string(room - done, '.'), "]");
  std::fprintf(stderr, "\r\033[K%s%s", bar.c_str(), text.c_str());
  std::fflush(stderr);
  bar_shown_ = true;
}

void Progress::Clear() {
  if (bar_shown_) std::fputs("\r\033[K", stderr);
  bar_shown_ = false;
}

}  // namespace metp
