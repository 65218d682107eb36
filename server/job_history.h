#pragma once

// Memory by category and seconds of each pass over a job's steps, for the status page. In memory only: it begins anew with
// the coordinator. Bounded: when it is full, neighbouring points are merged in pairs, and from then on a point is made of
// twice as many steps. Not thread-safe: the job table guards it.

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "metp/v1/report.pb.h"

namespace metp {

class JobHistory {
 public:
  static constexpr size_t kMostPoints = 512;
  /// Categories and passes that are told apart, each; further ones are left out.
  static constexpr size_t kMostNames = 16;

  struct Pass {  // seconds, summed over ranks and the point's steps
    float compute = 0, communication = 0, exposed = 0, skew = 0;
  };
  struct Point {
    int first_step = 0, last_step = 0;
    int steps = 0;      // merged into it
    float seconds = 0;  // summed over them; slowest rank
    /// By category, of the rank whose sum is largest: at its peak, and at the end of a step.
    std::vector<float> peak_bytes, current_bytes;
    std::vector<Pass> passes;
  };

  /// One rank's report of a step; the step counts when `ranks` have reported it. A step that is repeated replaces what was
  /// there from it on.
  void Add(const v1::StepReport& report, int ranks);
  /// Forgets unfinished steps: a new attempt begins.
  void StartAttempt() { partial_.clear(); }
  /// Merges neighbouring points in pairs.
  void Halve();
  void Clear();

  /// By ascending step.
  const std::vector<Point>& points() const { return points_; }
  /// What the points' vectors are indexed by; a point from before a name was first heard has shorter ones.
  const std::vector<std::string>& categories() const { return categories_; }
  const std::vector<std::string>& passes() const { return passes_; }
  /// Steps that a full point is made of.
  int stride() const { return stride_; }

 private:
  struct Partial {
    Point point;
    int reported = 0;
  };
  void Publish(Point point);

  std::vector<std::string> categories_, passes_;
  std::vector<Point> points_;
  std::map<int, Partial> partial_;  // by step
  int stride_ = 1;
};

}  // namespace metp
