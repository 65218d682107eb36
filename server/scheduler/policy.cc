#include "server/scheduler/policy.h"

#include <map>

#include "absl/strings/str_cat.h"

namespace metp {
namespace {

/// Takes one ring's workers out of `free`, which has enough.
void TakeRing(size_t degree, std::vector<FreeWorker>& free, std::vector<std::string>& taken) {
  while (degree > 0) {
    std::map<std::string, size_t> room;  // by node; the unknown ones are nodes of their own
    const auto node_of = [](const FreeWorker& worker) {
      return worker.node.empty() ? "\n" + worker.name : worker.node;
    };
    for (const FreeWorker& worker : free) ++room[node_of(worker)];
    // The first in the order of `free` among the best: enough room before little, then close before wide.
    const auto better = [&](size_t a, size_t b) {
      const bool a_holds = a >= degree, b_holds = b >= degree;
      if (a_holds != b_holds) return a_holds;
      return a_holds ? a < b : a > b;
    };
    std::string node = node_of(free.front());
    for (const FreeWorker& worker : free) {
      if (better(room[node_of(worker)], room[node])) node = node_of(worker);
    }
    std::erase_if(free, [&](const FreeWorker& worker) {
      if (degree == 0 || node_of(worker) != node) return false;
      taken.push_back(worker.name);
      --degree;
      return true;
    });
  }
}

std::string Count(size_t n, const char* noun) { return absl::StrCat(n, " ", noun, n == 1 ? "" : "s"); }

}  // namespace

Decisions Decide(const ClusterPicture& picture) {
  Decisions decisions;
  std::vector<FreeWorker> unused = picture.free;
  std::string blocked_by;  // the job that waits for busy workers
  for (const WaitingJob& job : picture.waiting) {
    const size_t needs = static_cast<size_t>(job.degree) * static_cast<size_t>(job.rings);
    const size_t free = unused.size();
    if (needs > static_cast<size_t>(picture.alive)) {
      decisions.wait.push_back({job.id, absl::StrCat("needs ", Count(needs, "worker"), ", ", picture.alive,
                                                     picture.alive == 1 ? " is there" : " are there")});
    } else if (!blocked_by.empty()) {
      decisions.wait.push_back({job.id, absl::StrCat("waits behind job ", blocked_by)});
    } else if (needs > free) {
      decisions.wait.push_back({job.id, absl::StrCat("needs ", Count(needs, "worker"), ", ", free, " of ",
                                                     picture.alive, free == 1 ? " is free" : " are free")});
      blocked_by = job.id;
    } else {
      decisions.start.push_back({job.id, {}});
      for (int ring = 0; ring < job.rings; ++ring)
        TakeRing(static_cast<size_t>(job.degree), unused, decisions.start.back().workers);
    }
  }
  return decisions;
}

}  // namespace metp
