// What the controller does as time passes.

#include <algorithm>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/controller.h"
#include "worker/model/plan.h"

namespace metp {
namespace {

constexpr std::chrono::seconds kAgain{
    1};  // what could not be done is tried again, and what has no event looked at
constexpr std::chrono::seconds kScheduleAgain{5};  // estimates change although nothing happens
constexpr int kScheduleShare = 10;  // a look at a long queue costs time: between two, so many times as much
constexpr std::chrono::seconds kStoodStill{5};  // between two ticks: this process did, not the ranks

}  // namespace

void Controller::Tick() {
  const Clock::Time now = clock_.Now();
  if (now - last_tick_ > kStoodStill) hangs_.ExcuseAll(now);
  last_tick_ = now;
  for (const auto& [worker, why] : workers_.Expire()) RanksAreGone(worker, why, {.lost = true});
  EndOverdue();
  if (now >= look_again_) {
    look_again_ = now + kAgain;
    EndHangs();
  }
  for (const LiveRank& rank : jobs_.TakeStops()) SendStop(rank);
  Schedule();
  Flush();
}

void Controller::RanksAreGone(const std::string& worker, const std::string& why, const Loss& loss) {
  for (const LiveRank& rank : jobs_.LiveRanks()) {
    if (rank.worker == worker) overdue_[{rank.attempt, rank.rank}] = {worker, why, loss, clock_.Now()};
  }
  EndOverdue();
  for (const LiveRank& rank : jobs_.LiveRanks()) {
    if (!loss.lost || rank.worker != worker || overdue_.count({rank.attempt, rank.rank}) == 0) continue;
    jobs_.NoteEvent(rank.job, v1::JobEvent::WORKER,
                    absl::StrCat(why, "; its rank ", rank.rank, " may train on, and is waited for"));
  }
}

std::map<std::string, Controller::Sight> Controller::Look(const std::vector<LiveRank>& live) const {
  std::map<std::string, Sight> sights;
  std::set<std::string> busy;
  for (const LiveRank& rank : live) {
    busy.insert(rank.worker);
    Sight& sight = sights[rank.attempt];
    ++sight.live;
    sight.heard = sight.heard || workers_.Ready(rank.worker);
  }
  const auto free = [&](v1::JobSpec::Device kind) {
    const std::vector<std::string> able = workers_.Schedulable(kind);
    return std::count_if(able.begin(), able.end(),
                         [&](const std::string& name) { return busy.count(name) == 0; });
  };
  for (auto& [attempt, sight] : sights) {
    if (sight.heard) continue;
    const absl::StatusOr<v1::JobStatus> status = jobs_.Get(JobOfAttempt(attempt));
    sight.whole = status.ok() && sight.live == status->ranks_size();
    sight.elsewhere = status.ok() && free(KindOf(status->plan())) >= sight.live;
  }
  return sights;
}

bool Controller::MayTrainOn(const LiveRank& rank, const Overdue& overdue, const Sight& sight) const {
  const Clock::Time now = clock_.Now();
  if (!overdue.loss.lost || rank.stop_sent) return false;
  if (now < overdue.until) return true;
  // Its neighbours' steps would have needed it.
  if (sight.heard) return hangs_.SteppedSince(rank.attempt, now - config_.lease);
  return workers_.Knows(rank.worker) && sight.whole && !sight.elsewhere;
}

void Controller::EndOverdue() {
  if (overdue_.empty()) return;
  const std::vector<LiveRank> live = jobs_.LiveRanks();
  const std::map<std::string, Sight> sights = Look(live);
  std::map<Registry::RankId, Overdue> still;
  for (const LiveRank& rank : live) {
    const auto found = overdue_.find({rank.attempt, rank.rank});
    if (found == overdue_.end()) continue;
    const Overdue& end = found->second;
    if (!MayTrainOn(rank, end, sights.at(rank.attempt)) &&
        Gone(rank.attempt, rank.rank,
             {rank.stop_sent ? end.loss.if_told : end.loss.otherwise,
              absl::StrCat("rank ", rank.rank, " on worker ", end.worker, ": ", end.why)})
            .ok())
      continue;
    still.insert(*found);  // it may train on, or the store refuses
  }
  overdue_ = std::move(still);
}

void Controller::BackAgain(const LiveRank& rank) {
  if (overdue_.erase({rank.attempt, rank.rank}) == 0) return;
  jobs_.NoteEvent(rank.job, v1::JobEvent::WORKER,
                  absl::StrCat("worker ", rank.worker, " is back, and its rank ", rank.rank, " with it"));
  for (auto& [id, other] : overdue_) {
    if (id.first == rank.attempt && other.loss.lost) other.until = clock_.Now() + config_.lease;
  }
}

void Controller::EndHangs() {
  const Clock::Time now = clock_.Now();
  for (const LiveRank& rank : jobs_.LiveRanks()) {
    if (!workers_.Ready(rank.worker))
      hangs_.Excuse(rank.attempt, now);  // steps may have been done that we have not heard of
  }
  for (const HangWatch::Hang& hang : hangs_.Take(now)) {
    std::string steps;
    for (const LiveRank& rank : jobs_.LiveRanks()) {
      if (rank.attempt == hang.attempt && steps.size() < 200)
        absl::StrAppend(&steps, steps.empty() ? "; last steps: " : ", ", "rank ", rank.rank, " ", rank.step);
    }
    if (!jobs_.EndAttempt(hang.attempt, {EndKind::kDeath, hang.sentence + steps}, /*dump=*/true).ok())
      hangs_.Begin(hang.attempt, now);  // the store refuses: another time
  }
}

void Controller::Schedule() {
  const Clock::Time now = clock_.Now();
  if (!ScheduleDue() && now < schedule_again_) return;
  if (now < schedule_next_) return;
  Decisions decisions = scheduler_.Tick();
  for (const Decisions::Start& start : decisions.start) {
    if (const auto status = jobs_.Get(start.job); status.ok()) hangs_.Begin(status->attempt(), now);
  }
  scheduled_ = {jobs_.schedule_version(), workers_.schedule_version()};
  Replan(decisions);
  for (Decisions::Wait& wait : decisions.wait) {
    const auto shortage = shortages_.find(wait.job);
    if (shortage != shortages_.end() && !shortage->second.refusal.empty())
      absl::StrAppend(&wait.reason, "; on fewer: ", shortage->second.refusal);
  }
  jobs_.SetWaiting(decisions.wait);
  schedule_next_ =
      clock_.Now() + std::min<Clock::Duration>(kScheduleShare * (clock_.Now() - now), kScheduleAgain);
  schedule_again_ = now + (shortages_.empty() ? kScheduleAgain : kAgain);
  if (ScheduleDue()) Schedule();  // a job has another plan now, and may start
}

bool Controller::ScheduleDue() const {
  return std::pair(jobs_.schedule_version(), workers_.schedule_version()) != scheduled_;
}

void Controller::Replan(const Decisions& decisions) {
  std::map<std::string, Shortage> still;
  for (const Decisions::Wait& wait : decisions.wait) {
    if (!wait.lacks) continue;
    const absl::StatusOr<v1::JobStatus> status = jobs_.Get(wait.job);
    if (!status.ok() || status->state() != v1::JobStatus::QUEUED) continue;
    const auto known = shortages_.find(wait.job);
    still[wait.job] = known == shortages_.end() ? Shortage{clock_.Now()} : known->second;
    PlanAgain(wait.job, *status, still[wait.job]);
  }
  shortages_ = std::move(still);
  for (const auto& [id, first] : jobs_.Shrunk()) {
    if (RanksOf(first.first) <= workers_.registered(KindOf(first.first)))
      jobs_.Replan(id, first.first, first.second, "since enough workers are there again").IgnoreError();
  }
}

void Controller::PlanAgain(const std::string& id, const v1::JobStatus& status, Shortage& shortage) {
  const v1::ParallelSpec& parallel = status.job().parallel();
  const int rings = std::max(1, parallel.rings());
  const bool may_shrink = parallel.degree() == 0 || parallel.min_degree() < parallel.degree();
  Workers there = WorkersToPlanOn(KindOf(status.plan()));
  if (!planner_ || !may_shrink || there.count < parallel.min_degree() * rings) return;
  if (shortage.planning || shortage.planned_on == there.count) return;
  if (clock_.Now() - shortage.since < config_.replan_after) return;
  v1::JobSpec job = status.job();
  job.mutable_parallel()->set_degree(0);
  if (parallel.degree() != 0) there.count = std::min(there.count, parallel.degree() * rings);
  shortage.planning = true;
  shortage.planned_on = there.count;
  planner_(job, there, [this, id, count = there.count](const absl::StatusOr<Choice>& choice) {
    const auto found = shortages_.find(id);
    if (found == shortages_.end()) return;  // the workers are back, or the job is gone
    found->second.planning = false;
    found->second.refusal = choice.ok() ? "" : std::string(choice.status().message());
    schedule_again_ = clock_.Now();
    if (!choice.ok()) return;
    const std::string why =
        absl::StrCat("on the ", count, count == 1 ? " worker" : " workers", " that are there");
    jobs_.Replan(id, choice->plan, choice->prediction, why).IgnoreError();
  });
}

void Controller::Flush() {
  const Clock::Time now = clock_.Now();
  if (now < flush_at_) return;
  std::vector<std::string> names = workers_.TakeForgotten();
  std::erase_if(names, [&](const std::string& name) { return workers_.Knows(name); });  // back already
  if (!names.empty()) {
    for (const std::string& name : names) remembered_.erase(name);
    // One that stays in the store is suspected and lost at the next start.
    store_.Write({.workers_gone = names}).IgnoreError();
  }
  const absl::Status written = jobs_.Flush({.taken = workers_.TakenChanges()});
  workers_.Acknowledge(written.ok());
  if (written.ok() == store_refuses_) {  // it has changed
    store_refuses_ = !written.ok();
    std::fprintf(
        stderr, "metp-coordinator: %s\n",
        store_refuses_
            ? absl::StrCat("the store takes no changes, so workers are not told that their reports were "
                           "taken: ",
                           std::string(written.message()))
                  .c_str()
            : "the store takes changes again");
  }
  flush_at_ = now + (store_refuses_ ? Clock::Duration(kAgain) : Clock::Duration(config_.flush_interval));
}

std::optional<Clock::Time> Controller::NextDeadline() const {
  std::optional<Clock::Time> next;
  const auto take = [&next](const std::optional<Clock::Time>& at) {
    if (at.has_value() && (!next.has_value() || *at < *next)) next = at;
  };
  if (jobs_.HasChanges() || workers_.Owes()) take(flush_at_);
  take(workers_.NextDeadline());
  take(jobs_.NextDeadline());
  if (hangs_.NextDeadline().has_value() || !overdue_.empty()) take(look_again_);
  if (!shortages_.empty()) take(std::max(schedule_again_, schedule_next_));
  if (ScheduleDue()) take(schedule_next_);
  return next;
}

}  // namespace metp
