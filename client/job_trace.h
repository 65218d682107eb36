#pragma once

// The timelines of a job's ranks, put together from the parts that come. Pure.

#include <cstdint>
#include <string>
#include <vector>

#include "metp/v1/job_service.pb.h"
#include "metp/v1/status.pb.h"
#include "proto/support/common_steps.h"

namespace metp {

class JobTrace {
 public:
  /// `steps` of this job are wanted.
  JobTrace(const v1::JobStatus& job, int steps);

  void Add(const v1::TraceChunk& chunk);
  /// The coordinator has said that this is all. The job may have been started again since it was looked at, on
  /// another number of ranks: then those that have sent steps are all, and a sentence says so; empty: it has not.
  std::string End();
  /// All ranks have them.
  bool complete() const { return whole_.First() > 0; }
  /// "steps 12 and 13 of 4 ranks, 1,234 spans"; of a complete one.
  std::string Summary() const;
  /// What has not come, for a trace that is not complete: "nothing came of rank 2 on cpu-2".
  std::string Missing() const;
  /// The steps that all ranks have as a Chrome trace, a process for each rank.
  std::string ToChromeTrace() const;

 private:
  /// Calls `take(part)` for the parts of the steps that all ranks have.
  template <typename Take>
  void ForEachPart(const Take& take) const;

  const v1::JobStatus job_;
  const int steps_;
  int ranks_;
  CommonSteps whole_;
  std::vector<v1::TracePart> parts_;
};

}  // namespace metp
