#pragma once

// What the ranks of a job have measured, put together: one point per step for the curve, running totals per
// rank. Not thread-safe: the job table guards it.

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "metp/v1/report.pb.h"
#include "metp/v1/status.pb.h"
#include "server/job_history.h"
#include "server/store/store.h"

namespace metp {

class JobProgress {
 public:
  /// Adds one rank's report to that rank's totals, and to the job's curve when all ranks have reported the
  /// step. False (and nothing changed) for a step at or before the rank's last one.
  bool Add(const v1::StepReport& report, v1::RankStatus& rank, v1::JobStatus& job);

  /// Steps after `after` that are missing here, as a checkpoint remembers them: reports of them were lost with their workers.
  void Fill(const google::protobuf::RepeatedPtrField<v1::StepPoint>& points, int after, v1::JobStatus& job);
  /// Ranks whose straggler_ratio has come to be at least `ratio`, each once in an attempt. Over the last
  /// 20 steps: seconds that a rank computed over those of the median rank.
  std::vector<int> TakeStragglers(double ratio, v1::JobStatus& job);

  /// Every step that all ranks have reported, by ascending step; and those before them that some have, since reports of the
  /// others were lost.
  const std::vector<v1::StepPoint>& points() const { return points_; }
  /// Points that have come so far, those that replace others too.
  int64_t published() const { return published_; }
  /// The first point after `step`.
  std::vector<v1::StepPoint>::const_iterator After(int step) const;
  /// Memory and passes over the steps that this coordinator has seen.
  const JobHistory& history() const { return history_; }
  JobHistory& history() { return history_; }
  /// Forgets unfinished steps: a new attempt begins.
  void StartAttempt();
  /// The job is done: steps that some ranks have reported count, although what the others reported is lost with them.
  void PublishRest(v1::JobStatus& job);

  /// As the store had it; `job` gets what is said of its last steps.
  void Load(const std::vector<v1::StoredStep>& steps, v1::JobStatus& job);
  /// What the store must be told of, since the last ClearChanges.
  void AddChanges(const std::string& job, StoreChange& change) const;
  void ClearChanges();

 private:
  struct Partial {
    v1::StepPoint point;
    int reported = 0;
    std::map<int, double> compute = {};  // seconds, by rank
  };
  void Publish(const v1::StepPoint& point, v1::JobStatus& job);
  /// The first step that not all ranks have reported, as it is.
  void PublishFirst(v1::JobStatus& job);
  void Summarize(v1::JobStatus& job) const;

  std::vector<v1::StepPoint> points_;
  std::map<int, Partial> partial_;             // by step
  std::deque<std::map<int, double>> compute_;  // of the last whole steps of this attempt
  std::set<int> stragglers_;                   // ranks, told
  JobHistory history_;
  int64_t published_ = 0;
  // What the store does not have yet.
  std::set<int> changed_;            // steps
  std::optional<int> forget_after_;  // later steps are to go first
  bool forget_unfinished_ = false;
};

}  // namespace metp
