#include "server/scheduler/policy.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string_view>
#include <utility>

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

std::string Count(int64_t n, const char* noun) { return absl::StrCat(n, " ", noun, n == 1 ? "" : "s"); }

/// "1 is free", "2 are free"
std::string State(int64_t n, const char* state) { return absl::StrCat(n, n == 1 ? " is " : " are ", state); }

/// A time in the coarsest unit that still says something: it is an estimate.
std::string About(double seconds) {
  constexpr double kMinute = 60, kHour = 3600;
  if (seconds < 2 * kMinute) return absl::StrCat(std::ceil(std::max(seconds, 1.0)), " s");
  if (seconds < 2 * kHour) return absl::StrCat(std::round(seconds / kMinute), " min");
  return absl::StrCat(std::round(seconds / kHour), " h");
}

int64_t Needs(const WaitingJob& job) { return int64_t{job.degree} * job.rings; }

/// One decision while it is made: the jobs come in their order, each changes what is left for those behind it.
/// Keys and pointers lead into the picture, which outlives it.
class Round {
 public:
  explicit Round(const ClusterPicture& picture);
  void Consider(const WaitingJob& job);
  Decisions Take() { return std::move(decisions_); }

 private:
  struct Quota {
    int64_t limit, held = 0;
    const std::string* waits = nullptr;  // the first job that needs more of it than is left
  };
  struct Keeper {
    const std::string* job;
    bool writes;  // otherwise it waits for its turn to
  };
  /// For the first job that waits only for others to finish.
  struct Reservation {
    const WaitingJob* job;
    std::optional<double> at = {};  // in seconds from now; nullopt: not known, so nobody passes
    int64_t extra = 0;              // workers that will be free then and that it does not need
  };

  /// What is left of a pool.
  struct Rest {
    const PoolPicture* picture;
    const char* noun;  // for one of its workers
    std::vector<FreeWorker> unused;
    std::vector<std::pair<double, int64_t>> ends = {};  // seconds from now, workers; only where it is known
    std::optional<Reservation> head = {};
    std::string behind = {};  // the reason of those that may not pass the head

    int64_t free() const { return static_cast<int64_t>(unused.size()); }
  };

  Rest& Of(Pool pool) { return rests_[static_cast<size_t>(pool)]; }
  Quota* QuotaOf(const std::string& name);
  void Hold(const std::string& id, Pool pool, int64_t workers, const std::string& quota,
            const std::string& folder, std::optional<double> seconds);
  std::string Obstacle(const WaitingJob& job, WaitCause& cause);
  const WaitingJob* HeadThatLacks(const WaitingJob& job, const Quota& quota) const;
  int64_t HeadsNeed(const std::string& quota) const;
  std::string Reserve(const WaitingJob& job);
  bool Passes(const WaitingJob& job);
  void Start(const WaitingJob& job);

  std::vector<Rest> rests_;  // by pool
  std::map<std::string_view, Quota> quotas_;
  std::map<std::string_view, Keeper> folders_;
  Decisions decisions_;
};

Round::Round(const ClusterPicture& picture) {
  const PoolPicture &cpu = picture.of(Pool::kCpu), &gpu = picture.of(Pool::kGpu);
  const bool only_cpus = gpu.alive + gpu.drained == 0;
  rests_ = {{&cpu, only_cpus ? "worker" : "CPU worker", cpu.free}, {&gpu, "GPU worker", gpu.free}};
  for (const auto& [name, limit] : picture.quotas) quotas_[name] = {limit};
  for (const RunningJob& job : picture.running)
    Hold(job.id, job.pool, job.workers, job.quota, job.folder, job.seconds_left);
}

Round::Quota* Round::QuotaOf(const std::string& name) {
  const auto quota = quotas_.find(name);
  return quota == quotas_.end() ? nullptr : &quota->second;
}

/// Counts a job that runs, be it from now on.
void Round::Hold(const std::string& id, Pool pool, int64_t workers, const std::string& quota,
                 const std::string& folder, std::optional<double> seconds) {
  if (Quota* const of = QuotaOf(quota)) of->held += workers;
  folders_[folder] = {&id, true};
  // One that is overdue has shown that its time is not known.
  if (seconds && *seconds >= 0) Of(pool).ends.emplace_back(*seconds, workers);
}

/// Why the job could not start even if all workers were free; empty: it could.
std::string Round::Obstacle(const WaitingJob& job, WaitCause& cause) {
  const int64_t needs = Needs(job);
  const Rest& rest = Of(job.pool);
  const PoolPicture& picture = *rest.picture;
  cause = WaitCause::kWorkers;
  if (needs > picture.alive)
    return absl::StrCat("needs ", Count(needs, rest.noun), ", ", State(picture.alive, "there"),
                        picture.drained > 0 ? absl::StrCat(", ", picture.drained, " drained") : "");
  cause = WaitCause::kQuota;
  Quota* const quota = QuotaOf(job.quota);
  if (quota != nullptr && needs > quota->limit)
    return absl::StrCat("needs ", Count(needs, "worker"), ", namespace ", job.quota, " may hold ",
                        quota->limit, " at once");
  if (quota != nullptr && quota->waits != nullptr)
    return absl::StrCat("waits behind job ", *quota->waits, ", for namespace ", job.quota, "'s quota");
  if (quota != nullptr && quota->held + needs > quota->limit) {
    quota->waits = &job.id;  // or small ones would pass it for ever
    return absl::StrCat("namespace ", job.quota, " may hold ", Count(quota->limit, "worker"),
                        " at once: ", State(quota->held, "held"), ", it needs ", needs);
  }
  if (const WaitingJob* const lacks = quota == nullptr ? nullptr : HeadThatLacks(job, *quota))
    return absl::StrCat("waits behind job ", lacks->id, ", for namespace ", job.quota, "'s quota");
  cause = WaitCause::kDirectory;
  const auto folder = job.folder.empty() ? folders_.end() : folders_.find(job.folder);
  if (folder == folders_.end()) return "";
  const auto& [keeper, writes] = folder->second;
  if (!writes) return absl::StrCat("waits behind job ", *keeper);
  return absl::StrCat("waits for job ", *keeper, ", which writes to the same checkpoint.directory");
}

/// The head of the other pool, if it would have to wait for the namespace's quota once its workers are there.
const WaitingJob* Round::HeadThatLacks(const WaitingJob& job, const Quota& quota) const {
  for (size_t pool = 0; pool < rests_.size(); ++pool) {
    const std::optional<Reservation>& head = rests_[pool].head;
    if (pool == static_cast<size_t>(job.pool) || !head || head->job->quota != job.quota) continue;
    if (quota.held + HeadsNeed(job.quota) + Needs(job) > quota.limit) return head->job;
  }
  return nullptr;
}

/// Of the namespace's quota, all pools together.
int64_t Round::HeadsNeed(const std::string& quota) const {
  int64_t needs = 0;
  for (const Rest& rest : rests_) {
    if (rest.head && rest.head->job->quota == quota) needs += Needs(*rest.head->job);
  }
  return needs;
}

/// Makes the job its pool's head: from here on a job of the pool starts only if it passes it. Returns why the head waits.
std::string Round::Reserve(const WaitingJob& job) {
  const int64_t needs = Needs(job);
  Rest& rest = Of(job.pool);
  Reservation& head = rest.head.emplace(Reservation{&job});
  rest.behind = absl::StrCat("waits behind job ", job.id);
  std::sort(rest.ends.begin(), rest.ends.end());
  int64_t then = rest.free();
  for (const auto& [at, workers] : rest.ends) {
    if (head.at && at > *head.at) break;  // those that end in the same moment count together
    then += workers;
    if (!head.at && then >= needs) head.at = at;
  }
  // A job may hold workers that will take no other: more than are alive will not be free.
  head.extra = std::min<int64_t>(then, rest.picture->alive) - needs;
  return absl::StrCat("needs ", Count(needs, rest.noun), ", ", rest.free(), " of ", rest.picture->alive,
                      rest.free() == 1 ? " is free" : " are free",
                      head.at ? absl::StrCat(", expected in about ", About(*head.at)) : "");
}

/// Whether the job may start before the head, as it does not delay it; then the head's extra workers are counted.
bool Round::Passes(const WaitingJob& job) {
  const int64_t needs = Needs(job);
  Rest& rest = Of(job.pool);
  Reservation& head = *rest.head;
  if (needs > rest.free() || !head.at) return false;
  // The head must not wait for its quota when its workers are there.
  const Quota* const quota = job.quota == head.job->quota ? QuotaOf(job.quota) : nullptr;
  if (quota != nullptr && quota->held + HeadsNeed(job.quota) + needs > quota->limit) return false;
  if (job.seconds && *job.seconds <= *head.at) return true;
  if (needs > head.extra) return false;
  head.extra -= needs;
  return true;
}

void Round::Start(const WaitingJob& job) {
  std::vector<std::string>& workers = decisions_.start.emplace_back(Decisions::Start{job.id, {}}).workers;
  for (int ring = 0; ring < job.rings; ++ring)
    TakeRing(static_cast<size_t>(job.degree), Of(job.pool).unused, workers);
  Hold(job.id, job.pool, Needs(job), job.quota, job.folder, job.seconds);
}

void Round::Consider(const WaitingJob& job) {
  if (job.delayed) return;
  const Rest& rest = Of(job.pool);
  WaitCause cause;
  std::string reason = Obstacle(job, cause);
  if (reason.empty()) {
    if (rest.head ? Passes(job) : Needs(job) <= rest.free()) return Start(job);
    // It waits for its turn: nobody behind it gets into its folder first.
    folders_[job.folder] = {&job.id, false};
    reason = rest.head ? rest.behind : Reserve(job);
    cause = WaitCause::kBusy;
  }
  decisions_.wait.push_back({job.id, std::move(reason), Needs(job) > rest.picture->alive, cause});
}

}  // namespace

std::string WaitCauseName(WaitCause cause) {
  static constexpr const char* kNames[kWaitCauses] = {"workers", "busy", "quota", "directory", "backoff"};
  return kNames[static_cast<int>(cause)];
}

Decisions Decide(const ClusterPicture& picture) {
  std::vector<const WaitingJob*> order;
  order.reserve(picture.waiting.size());
  for (const WaitingJob& job : picture.waiting) order.push_back(&job);
  std::stable_sort(order.begin(), order.end(),
                   [](const WaitingJob* a, const WaitingJob* b) { return a->priority > b->priority; });
  Round round(picture);
  for (const WaitingJob* job : order) round.Consider(*job);
  return round.Take();
}

}  // namespace metp
