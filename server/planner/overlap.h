#pragma once

// The full-overlap condition in closed form (metp.md, section 4): for each pass one hop from its middle, and the
// computing that runs beside it. It holds where that computing takes at least as long. Pure.
//
// What is counted is what the ring does in the steady state: all parts as large as the largest, weights of the
// next head group and gradients of the previous one aboard where the pass carries them. The first and last
// hops of a pass, where a home hop of the pass before may be aboard too, are the simulation's business.

#include <vector>

#include "metp/v1/job.pb.h"
#include "metp/v1/plan.pb.h"
#include "metp/v1/profile.pb.h"
#include "worker/ring/passes.h"

namespace metp {

struct PassOverlap {
  Pass pass;
  bool verdict = false;      // false: listed, but no condition (embedding: nothing to hide behind)
  double compute = 0;        // seconds beside one hop
  double communication = 0;  // seconds of one hop
  bool hides() const { return compute >= communication; }
};

/// Every pass of a step of `plan`; empty for one rank.
std::vector<PassOverlap> OverlapOf(const v1::JobSpec& job, const v1::Plan& plan,
                                   const v1::DeviceProfile& profile);

/// Every pass of the verdict hides. True for one rank: it has nothing to hide.
bool FullOverlap(const std::vector<PassOverlap>& passes);

/// The shortest sequence at which the plan overlaps fully, by bisection up to 2^31 - 2 tokens; 0: none.
int64_t SmallestFullOverlapSequence(const v1::JobSpec& job, const v1::Plan& plan,
                                    const v1::DeviceProfile& profile);

/// The largest ring at which the job's sequence overlaps fully, of 1 to 64 ranks, then in steps of 8 to 512, then of
/// 64 to 4096; at least 1.
int LargestFullOverlapDegree(const v1::JobSpec& job, const v1::Plan& plan, const v1::DeviceProfile& profile);

}  // namespace metp
