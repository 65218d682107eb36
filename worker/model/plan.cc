#include "worker/model/plan.h"

#include <algorithm>
#include <string>

namespace metp {

v1::Plan ResolvePlan(const v1::JobSpec& job) {
  const v1::ParallelSpec& parallel = job.parallel();
  const int g = job.model().kv_heads();
  v1::Plan plan;
  plan.set_degree(parallel.degree());

  const int asked = parallel.head_groups();
  plan.set_head_groups(std::min(asked == 0 ? parallel.degree() : asked, g));
  if (asked == 0) {
    plan.add_notes("head_groups auto: " + std::to_string(plan.head_groups()) +
                   ", one per rank up to kv_heads " + std::to_string(g));
  } else if (asked > g) {
    plan.add_notes("head_groups " + std::to_string(asked) + " count as " + std::to_string(g) +
                   ": a key/value head is never split");
  }

  const int rows = parallel.tile_rows();
  plan.set_tile_rows(rows == 0 ? kAutoTileRows : std::max(rows, 0));
  if (rows == 0) plan.add_notes("tile_rows auto: " + std::to_string(kAutoTileRows));
  return plan;
}

}  // namespace metp
