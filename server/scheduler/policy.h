#pragma once

// Who starts next, as a pure function: a picture of what waits, what runs and what is free goes in, decisions come out.
//
// Order: by priority, within one by submission. A gang gets all its workers or none. The first job that waits only for
// others to finish has a reservation: a later one passes it only if that does not delay it, because it will have ended by
// the time at which enough workers are expected to be free, or takes none of those that will be needed then (EASY
// backfilling; Lifka 1995). Where that time is not known nobody passes. A job that cannot start whoever finishes (more
// workers than are there, its namespace's quota, its checkpoint folder in use, not yet after a fault) has no reservation
// and keeps nobody waiting; only, while one waits for its namespace's quota, no later one takes of that.
//
// Workers on CPUs and workers on GPUs are two pools: a job's plan is for one of them, its ranks all come from there, and a
// reservation in one holds nobody of the other back, but for the namespace's quota, which counts workers of both.
//
// A ring goes to one machine where one has room, the one with least room to spare; otherwise to as few as possible, its
// ranks on a machine side by side, so that it crosses between machines as rarely as it can.

#include <array>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "metp/v1/job.pb.h"

namespace metp {

enum class Pool { kCpu, kGpu };
inline constexpr size_t kPools = 2;
/// Unspecified: the CPUs.
inline Pool PoolOf(v1::JobSpec::Device device) {
  return device == v1::JobSpec::DEVICE_GPU ? Pool::kGpu : Pool::kCpu;
}

struct WaitingJob {
  std::string id;
  int degree = 1;  // ranks in a ring
  int rings = 1;
  int priority = 0;
  std::string quota = {};              // the namespace that it counts against
  std::string folder = {};             // that only one job may write to at a time; empty: none
  bool delayed = false;                // by itself: it waits, and keeps the reason that it has
  std::optional<double> seconds = {};  // that it is expected to run; nullopt: not known
  Pool pool = Pool::kCpu;
};

struct RunningJob {
  std::string id;
  int workers = 0;  // that it holds
  std::string quota = {}, folder = {};
  std::optional<double> seconds_left = {};
  Pool pool = Pool::kCpu;
};

struct FreeWorker {
  std::string name;
  std::string node = {};  // the machine; empty: not known, a machine of its own
};

struct PoolPicture {
  std::vector<FreeWorker> free;  // that can take a rank now, in the order in which they are to be used
  int alive = 0;                 // workers that can take ranks, now or when their present job ends
  int drained = 0;               // workers that are there and take no ranks
};

struct ClusterPicture {
  std::vector<WaitingJob> waiting;  // in order of submission
  std::array<PoolPicture, kPools> pools = {};
  std::vector<RunningJob> running = {};
  std::map<std::string, int> quotas =
      {};  // workers that a namespace's jobs may hold at once; absent: any number

  PoolPicture& of(Pool pool) { return pools[static_cast<size_t>(pool)]; }
  const PoolPicture& of(Pool pool) const { return pools[static_cast<size_t>(pool)]; }
};

/// What a job waits for: more workers than there are; others to end; its namespace's quota; a folder in which another job
/// writes; or, by itself, the time after a fault.
enum class WaitCause { kWorkers, kBusy, kQuota, kDirectory, kBackoff };
inline constexpr int kWaitCauses = 5;
/// "workers", "busy", "quota", "directory", "backoff".
std::string WaitCauseName(WaitCause cause);

struct Decisions {
  struct Start {
    std::string job;
    std::vector<std::string> workers;  // workers[r] takes rank r
  };
  struct Wait {
    std::string job, reason;
    bool lacks = false;  // it needs more workers than there are
    WaitCause cause = WaitCause::kBusy;
  };
  std::vector<Start> start;
  std::vector<Wait> wait;  // every job that does not start and is not delayed, with one reason
};

Decisions Decide(const ClusterPicture& picture);

}  // namespace metp
