// The policy through random lives of jobs: what it must never do, and what it promises.

#include <gmock/gmock.h>

#include <random>
#include <set>

#include "server/scheduler/policy.h"

namespace metp {
namespace {

/// A cluster in which time passes: random jobs arrive, run for exactly as long as they say, and end. After every
/// decision it checks what must hold whatever the jobs.
class Simulation {
 public:
  /// `plain`: only sizes and lengths differ, so nothing but the running jobs ever keeps the first from starting.
  Simulation(uint32_t seed, bool plain);
  void Run();

  int kept = 0;    // promises to the first that waits
  int passed = 0;  // jobs that started before one that they stood behind

 private:
  struct Life {
    WaitingJob job;
    int arrives = 0, ready = 0, lasts = 0;  // it is delayed until it is ready
    std::optional<int> began = {};
    std::vector<std::string> workers = {};
    std::optional<int> promised = {};  // the latest time at which it may start

    int needs() const { return job.degree * job.rings; }
    int ends() const { return *began + lasts; }
    bool waits(int now) const { return arrives <= now && !began; }
    bool runs(int now) const { return began && ends() > now; }
  };

  int Pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  Life RandomLife(int index);
  bool IsPossible(const Life& life) const;
  bool IsAhead(const Life& a, const Life& b) const;
  Life& Named(const std::string& id) { return lives_.at(std::stoul(id)); }
  ClusterPicture Look() const;
  std::optional<int> TimeOfRoom(const Life& head) const;
  void Apply(const Decisions& decisions);
  void Promise(const Decisions& decisions);
  void CheckLimits() const;
  bool Advance();

  std::mt19937 random_;
  const bool plain_;
  int now_ = 0;
  std::vector<std::string> workers_;
  std::map<std::string, int> quotas_;
  std::vector<Life> lives_;  // in order of submission
};

Simulation::Simulation(uint32_t seed, bool plain) : random_(seed), plain_(plain) {
  const int workers = Pick(1, 10);
  for (int i = 0; i < workers; ++i) workers_.push_back("w" + std::to_string(i));
  if (!plain) quotas_ = {{"n", Pick(1, workers)}};
  for (int i = 0; i < 40; ++i) lives_.push_back(RandomLife(i));
}

Simulation::Life Simulation::RandomLife(int index) {
  Life life;
  life.job = {.id = std::to_string(index), .degree = Pick(1, 3), .rings = Pick(1, 3)};
  life.arrives = life.ready = index == 0 ? 0 : lives_.back().arrives + Pick(0, 6);
  life.lasts = Pick(1, 20);
  if (plain_ || Pick(0, 9) > 0) life.job.seconds = life.lasts;
  if (plain_) return life;
  life.job.priority = Pick(0, 9) == 0 ? 1 : 0;
  life.job.quota = std::vector<std::string>{"", "n", "o"}.at(Pick(0, 2));
  life.job.folder = std::vector<std::string>{"", "", "f", "g"}.at(Pick(0, 3));
  if (Pick(0, 4) == 0) life.ready += Pick(1, 30);
  return life;
}

bool Simulation::IsPossible(const Life& life) const {
  const auto quota = quotas_.find(life.job.quota);
  return life.needs() <= static_cast<int>(workers_.size()) &&
         (quota == quotas_.end() || life.needs() <= quota->second);
}

bool Simulation::IsAhead(const Life& a, const Life& b) const {
  return a.job.priority != b.job.priority ? a.job.priority > b.job.priority : &a < &b;
}

ClusterPicture Simulation::Look() const {
  ClusterPicture picture{{}, {}, {}, quotas_};
  PoolPicture& pool = picture.of(Pool::kCpu);
  pool.alive = static_cast<int>(workers_.size());
  std::set<std::string> busy;
  for (const Life& life : lives_) {
    if (life.waits(now_)) {
      picture.waiting.push_back(life.job);
      picture.waiting.back().delayed = life.ready > now_;
    } else if (life.runs(now_)) {
      busy.insert(life.workers.begin(), life.workers.end());
      picture.running.push_back({life.job.id, life.needs(), life.job.quota, life.job.folder});
      if (life.job.seconds) picture.running.back().seconds_left = life.ends() - now_;
    }
  }
  for (const std::string& worker : workers_) {
    if (busy.count(worker) == 0) pool.free.push_back({worker, worker.substr(0, 1 + worker.back() % 2)});
  }
  return picture;
}

/// The first moment at which those that run, but for the ones that passed it just now, leave the head enough workers.
std::optional<int> Simulation::TimeOfRoom(const Life& head) const {
  std::optional<int> first;
  for (const Life& last : lives_) {
    if (!last.runs(now_)) continue;
    int room = static_cast<int>(workers_.size());
    for (const Life& life : lives_) {
      if (!life.runs(now_) || (life.began == now_ && IsAhead(head, life))) continue;
      if (!life.job.seconds || life.ends() > last.ends()) room -= life.needs();
    }
    if (room >= head.needs()) first = std::min(first.value_or(last.ends()), last.ends());
  }
  return first;
}

void Simulation::Apply(const Decisions& decisions) {
  const ClusterPicture before = Look();
  std::set<std::string> free, undecided;
  for (const FreeWorker& worker : before.of(Pool::kCpu).free) free.insert(worker.name);
  for (const WaitingJob& job : before.waiting) {
    if (!job.delayed) undecided.insert(job.id);
  }
  for (const Decisions::Start& start : decisions.start) {
    ASSERT_EQ(undecided.erase(start.job), 1u) << start.job;
    Life& life = Named(start.job);
    ASSERT_EQ(static_cast<int>(start.workers.size()), life.needs()) << start.job;
    for (const std::string& worker : start.workers) ASSERT_EQ(free.erase(worker), 1u) << worker;
    life.began = now_;
    life.workers = start.workers;
    if (life.promised) ++kept;
    ASSERT_LE(now_, life.promised.value_or(now_)) << "job " << start.job << " was promised an earlier start";
  }
  for (const Decisions::Wait& wait : decisions.wait) ASSERT_EQ(undecided.erase(wait.job), 1u) << wait.job;
  ASSERT_TRUE(undecided.empty()) << *undecided.begin() << " has neither start nor reason";
}

/// Keeps account of what the first that waits may count on. One ahead of it that could not start before, or has come
/// since, may take its place, or have its namespace's quota first: then it may count on nothing any more.
void Simulation::Promise(const Decisions& decisions) {
  std::vector<Life*> ahead;
  Life* head = nullptr;
  for (const Decisions::Start& start : decisions.start) ahead.push_back(&Named(start.job));
  std::vector<const Life*> short_of_quota;
  for (const Decisions::Wait& wait : decisions.wait) {
    if (wait.reason.find(" held, it needs ") != std::string::npos) short_of_quota.push_back(&Named(wait.job));
    if (wait.reason.find(" free") == std::string::npos) continue;
    ASSERT_EQ(head, nullptr) << wait.job << " is a second head";
    ahead.push_back(head = &Named(wait.job));
  }
  for (const Decisions::Start& start : decisions.start) {
    for (const Life* waits : short_of_quota) {
      const Life& life = Named(start.job);
      ASSERT_FALSE(life.job.quota == waits->job.quota && IsAhead(*waits, life))
          << life.job.id << " takes of the quota that " << waits->job.id << " waits for";
    }
  }
  for (Life& life : lives_) {
    if (!life.promised || life.began) continue;
    for (const Life* waits : short_of_quota) {
      if (waits->job.quota == life.job.quota && IsAhead(*waits, life)) life.promised.reset();
    }
    if (!life.promised) continue;
    for (const Life* other : ahead) {
      if (!IsAhead(*other, life)) continue;
      ASSERT_FALSE(plain_) << "job " << life.job.id << " was the first that waits";
      life.promised.reset();
      break;
    }
  }
  if (head == nullptr) return;
  for (const Life* other : ahead) passed += IsAhead(*head, *other) ? 1 : 0;
  if (!head->promised) head->promised = TimeOfRoom(*head);
  ASSERT_TRUE(head->promised || !plain_);
}

void Simulation::CheckLimits() const {
  std::map<std::string, int> held, writers;
  int used = 0;
  bool waits = false;
  for (const Life& life : lives_) {
    waits |= life.waits(now_) && life.ready <= now_ && IsPossible(life);
    if (!life.runs(now_)) continue;
    used += life.needs();
    held[life.job.quota] += life.needs();
    ++writers[life.job.folder];
  }
  ASSERT_LE(used, static_cast<int>(workers_.size()));
  for (const auto& [name, limit] : quotas_) ASSERT_LE(held[name], limit) << name;
  for (const auto& [folder, jobs] : writers) ASSERT_TRUE(jobs == 1 || folder.empty()) << folder;
  ASSERT_FALSE(waits && used == 0) << "a job waits for nothing";
}

/// To the next moment at which something changes; false: there is none.
bool Simulation::Advance() {
  std::optional<int> next;
  const auto consider = [&](int time) {
    if (time > now_) next = std::min(next.value_or(time), time);
  };
  for (const Life& life : lives_) {
    consider(life.arrives);
    consider(life.ready);
    if (life.began) consider(life.ends());
  }
  now_ = next.value_or(now_);
  return next.has_value();
}

void Simulation::Run() {
  do {
    SCOPED_TRACE(::testing::Message() << "time " << now_);
    const Decisions decisions = Decide(Look());
    ASSERT_NO_FATAL_FAILURE(Apply(decisions));
    ASSERT_NO_FATAL_FAILURE(Promise(decisions));
    ASSERT_NO_FATAL_FAILURE(CheckLimits());
  } while (Advance());
  for (const Life& life : lives_)
    EXPECT_EQ(life.began.has_value(), IsPossible(life)) << "job " << life.job.id;
}

TEST(Policy, KeepsLimitsAndPromisesWhateverTheJobs) {
  for (const bool plain : {true, false}) {
    int kept = 0, passed = 0;
    for (uint32_t seed = 0; seed < 200; ++seed) {
      SCOPED_TRACE(::testing::Message() << (plain ? "plain, " : "") << "seed " << seed);
      Simulation simulation(seed, plain);
      ASSERT_NO_FATAL_FAILURE(simulation.Run());
      kept += simulation.kept;
      passed += simulation.passed;
    }
    EXPECT_GT(kept, 500);  // otherwise the jobs are such that nothing was tried
    EXPECT_GT(passed, 500);
  }
}

}  // namespace
}  // namespace metp
