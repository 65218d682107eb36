#include "server/scheduler/policy.h"

#include "absl/strings/str_cat.h"

namespace metp {
namespace {

std::string Count(size_t n, const char* noun) { return absl::StrCat(n, " ", noun, n == 1 ? "" : "s"); }

}  // namespace

Decisions Decide(const ClusterPicture& picture) {
  Decisions decisions;
  size_t next = 0;         // first worker of picture.free that is not given away
  std::string blocked_by;  // the job that waits for busy workers
  for (const WaitingJob& job : picture.waiting) {
    const size_t needs = static_cast<size_t>(job.degree);
    const size_t free = picture.free.size() - next;
    if (static_cast<int>(needs) > picture.alive) {
      decisions.wait.push_back({job.id, absl::StrCat("needs ", Count(needs, "worker"), ", ", picture.alive,
                                                     picture.alive == 1 ? " is there" : " are there")});
    } else if (!blocked_by.empty()) {
      decisions.wait.push_back({job.id, absl::StrCat("waits behind job ", blocked_by)});
    } else if (needs > free) {
      decisions.wait.push_back({job.id, absl::StrCat("needs ", Count(needs, "worker"), ", ", free, " of ",
                                                     picture.alive, free == 1 ? " is free" : " are free")});
      blocked_by = job.id;
    } else {
      decisions.start.push_back({job.id, {picture.free.begin() + next, picture.free.begin() + next + needs}});
      next += needs;
    }
  }
  return decisions;
}

}  // namespace metp
