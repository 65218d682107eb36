#pragma once

// Who starts next, as a pure function: a picture of what waits and what is free goes in, decisions come out.
// First come, first served; a gang gets all its workers or none. A job that needs more workers than are there
// at all keeps nobody waiting; one that only waits for others to finish does, so that a large job is not
// passed by for ever. A ring goes to one machine where one has room, the one with least room to spare; otherwise to
// as few as possible, its ranks on a machine side by side, so that it crosses between machines as rarely as it can.

#include <string>
#include <vector>

namespace metp {

struct WaitingJob {
  std::string id;
  int degree = 1;  // ranks in a ring
  int rings = 1;
};

struct FreeWorker {
  std::string name;
  std::string node = {};  // the machine; empty: not known, a machine of its own
};

struct ClusterPicture {
  std::vector<WaitingJob> waiting;  // in order of submission
  std::vector<FreeWorker> free;     // that can take a rank now, in the order in which they are to be used
  int alive = 0;                    // workers that can take ranks, now or when their present job ends
};

struct Decisions {
  struct Start {
    std::string job;
    std::vector<std::string> workers;  // workers[r] takes rank r
  };
  struct Wait {
    std::string job, reason;
  };
  std::vector<Start> start;
  std::vector<Wait> wait;  // every job that does not start, with one reason
};

Decisions Decide(const ClusterPicture& picture);

}  // namespace metp
