#include "server/hang_watch.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace metp {
namespace {

constexpr size_t kStepsRemembered = 20;

double Seconds(Clock::Duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

void HangWatch::Begin(const std::string& attempt, Clock::Time now) {
  attempts_[attempt] = {now, config_.start_timeout};
}

Clock::Duration HangWatch::Learned(const Attempt& attempt) const {
  const double longest = *std::max_element(attempt.seconds.begin(), attempt.seconds.end());
  const auto learned = std::chrono::duration_cast<Clock::Duration>(
      std::chrono::duration<double>(std::min(config_.hang_factor * longest, 1e8)));
  return std::max<Clock::Duration>(learned, config_.hang_floor);
}

void HangWatch::Step(const std::string& attempt, int step, double step_seconds, Clock::Time now) {
  const auto found = attempts_.find(attempt);
  if (found == attempts_.end() || step <= found->second.step) return;
  Attempt& known = found->second;
  known.step = step;
  known.stepped = now;
  known.seconds.push_back(step_seconds);
  if (known.seconds.size() > kStepsRemembered) known.seconds.pop_front();
  known.since = now;
  known.allowed = Learned(known);
}

void HangWatch::Waits(const std::string& attempt, Clock::Time now) {
  const auto found = attempts_.find(attempt);
  if (found == attempts_.end()) return;
  found->second.since = now;
  found->second.allowed = std::max<Clock::Duration>(found->second.allowed, config_.start_timeout);
}

void HangWatch::Excuse(const std::string& attempt, Clock::Time now) {
  const auto found = attempts_.find(attempt);
  if (found != attempts_.end()) found->second.since = now;
}

bool HangWatch::SteppedSince(const std::string& attempt, Clock::Time time) const {
  const auto found = attempts_.find(attempt);
  return found != attempts_.end() && found->second.step > 0 && found->second.stepped > time;
}

void HangWatch::ExcuseAll(Clock::Time now) {
  for (auto& [name, attempt] : attempts_) attempt.since = now;
}

std::vector<HangWatch::Hang> HangWatch::Take(Clock::Time now) {
  std::vector<Hang> hangs;
  std::erase_if(attempts_, [&](const auto& entry) {
    const Attempt& attempt = entry.second;
    if (now - attempt.since <= attempt.allowed) return false;
    const std::string still =
        absl::StrCat("no step for ", static_cast<int>(Seconds(now - attempt.since)), " s");
    hangs.push_back(
        {entry.first, attempt.step == 0
                          ? absl::StrCat("it hangs: ", still, " since it was started")
                          : absl::StrCat("it hangs: ", still, " after step ", attempt.step, ", where ",
                                         Seconds(attempt.allowed), " s are allowed")});
    return true;
  });
  return hangs;
}

std::optional<Clock::Time> HangWatch::NextDeadline() const {
  std::optional<Clock::Time> next;
  for (const auto& [name, attempt] : attempts_) {
    const Clock::Time at = attempt.since + attempt.allowed + std::chrono::milliseconds(1);
    if (!next || at < *next) next = at;
  }
  return next;
}

}  // namespace metp
