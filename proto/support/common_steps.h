#pragma once

// Which steps of a job's trace are whole: the parts of a rank's step come in order, the first with the span of the step itself,
// and every rank begins and ends with steps of its own. One thread.

#include <map>
#include <set>
#include <vector>

#include "metp/v1/report.pb.h"

namespace metp {

/// Ranks of a job are told to trace at different times, and stand a step apart: each traces so many more than it is told to.
inline constexpr int kMoreTracedSteps = 3;
/// That a client may ask for.
inline constexpr int kMostTracedSteps = 16;

class CommonSteps {
 public:
  /// Of `ranks` ranks, `steps` consecutive steps are wanted.
  CommonSteps(int ranks, int steps) : ranks_(ranks), steps_(steps) {}

  void Add(const v1::TracePart& part) {
    if (part.rank() < 0 || part.rank() >= static_cast<int>(ranks_.size())) return;
    Rank& rank = ranks_[part.rank()];
    for (const v1::TraceSpan& span : part.spans()) {
      if (span.track() == "step") rank.begun = part.step();
    }
    if (!part.last() || rank.begun != part.step() || !rank.whole.insert(part.step()).second) return;
    ++have_[part.step()];
  }

  /// The first step of the first row that every rank has; 0: there is none yet.
  int First() const {
    int row = 0, before = 0;
    for (const auto& [step, have] : have_) {
      if (have < static_cast<int>(ranks_.size())) continue;
      row = step == before + 1 ? row + 1 : 1;
      before = step;
      if (row == steps_) return step - steps_ + 1;
    }
    return 0;
  }
  /// Whole steps of a rank.
  int Count(int rank) const { return static_cast<int>(ranks_.at(rank).whole.size()); }

 private:
  struct Rank {
    int begun = 0;
    std::set<int> whole;
  };
  std::vector<Rank> ranks_;
  std::map<int, int> have_;  // ranks, by step
  int steps_;
};

}  // namespace metp
