#include "server/scheduler/policy.h"

#include <gmock/gmock.h>

#include <random>
#include <set>

namespace metp {
namespace {

struct Row {
  const char* why;
  std::vector<WaitingJob> waiting;
  std::vector<std::string> free;
  int alive;
  std::vector<std::pair<std::string, std::vector<std::string>>> start;
  std::vector<std::pair<std::string, std::string>> wait;
  std::vector<RunningJob> running = {};
  std::map<std::string, int> quotas = {};
  int drained = 0;
};

const Row kRows[] = {
    {"nothing waits", {}, {"a"}, 1, {}, {}},
    {"a gang gets workers in the order given", {{"x", 2}}, {"a", "b", "c"}, 3, {{"x", {"a", "b"}}}, {}},
    {"several start at once while there is room",
     {{"x", 1}, {"y", 2}},
     {"a", "b", "c"},
     3,
     {{"x", {"a"}}, {"y", {"b", "c"}}},
     {}},
    {"a gang gets all or nothing",
     {{"x", 3}},
     {"a", "b"},
     4,
     {},
     {{"x", "needs 3 workers, 2 of 4 are free"}}},
    {"one free worker is singular", {{"x", 2}}, {"a"}, 2, {}, {{"x", "needs 2 workers, 1 of 2 is free"}}},
    {"first come, first served: a small job does not pass a large one that will fit",
     {{"x", 3}, {"y", 1}},
     {"a", "b"},
     4,
     {},
     {{"x", "needs 3 workers, 2 of 4 are free"}, {"y", "waits behind job x"}}},
    {"a job that cannot fit at all keeps nobody waiting",
     {{"x", 5}, {"y", 1}},
     {"a", "b"},
     4,
     {{"y", {"a"}}},
     {{"x", "needs 5 workers, 4 are there"}}},
    {"without workers everyone waits", {{"x", 1}}, {}, 0, {}, {{"x", "needs 1 worker, 0 are there"}}},
    {"a ring goes to the machine with least room to spare",
     {{"x", 2}},
     {"a@1", "b@1", "c@1", "d@2", "e@3", "f@3"},
     6,
     {{"x", {"e", "f"}}},
     {}},
    {"a ring that no machine holds goes to as few as possible, side by side",
     {{"x", 5}},
     {"a@1", "b@2", "c@3", "d@2", "e@3", "f@2"},
     6,
     {{"x", {"b", "d", "f", "c", "e"}}},
     {}},
    {"each ring of a job is placed by itself",
     {{"x", 2, 2}},
     {"a@1", "b@2", "c@1", "d@2"},
     4,
     {{"x", {"a", "c", "b", "d"}}},
     {}},
    {"rings count as one gang", {{"x", 2, 3}}, {"a", "b"}, 2, {}, {{"x", "needs 6 workers, 2 are there"}}},
    {"the rest waits behind the first that waits, not behind those that start",
     {{"x", 1}, {"y", 2}, {"z", 1}},
     {"a", "b"},
     2,
     {{"x", {"a"}}},
     {{"y", "needs 2 workers, 1 of 2 is free"}, {"z", "waits behind job y"}}},

    // Order.
    {"a job of high priority goes first, also when it came later",
     {{.id = "x"}, {.id = "y"}, {.id = "z", .priority = 1}},
     {"a", "b"},
     2,
     {{"z", {"a"}}, {"x", {"b"}}},
     {{"y", "needs 1 worker, 0 of 2 are free"}}},
    {"a job of low priority does not pass one of high priority that waits",
     {{.id = "x", .priority = -1}, {.id = "y", .degree = 2}},
     {"a"},
     2,
     {},
     {{"y", "needs 2 workers, 1 of 2 is free"}, {"x", "waits behind job y"}}},

    // Jobs that cannot start whoever ends.
    {"drained workers are named where they would help",
     {{"x", 5}, {"y", 1}},
     {"a"},
     4,
     {{"y", {"a"}}},
     {{"x", "needs 5 workers, 4 are there, 2 drained"}},
     {},
     {},
     2},
    {"a delayed job keeps its reason, its folder free and nobody waiting",
     {{.id = "x", .degree = 2, .folder = "f", .delayed = true}, {.id = "y", .folder = "f"}},
     {"a"},
     2,
     {{"y", {"a"}}},
     {}},
    {"a namespace's quota counts what runs, and keeps nobody waiting",
     {{.id = "x", .degree = 2, .quota = "research"},
      {.id = "y", .quota = "research"},
      {.id = "z", .degree = 2}},
     {"a", "b", "c"},
     6,
     {{"y", {"a"}}, {"z", {"b", "c"}}},
     {{"x", "namespace research may hold 4 workers at once: 3 are held, it needs 2"}},
     {{"r", 2, "research"}, {"s", 1, "research"}},
     {{"research", 4}}},
    {"a namespace's quota counts what starts in the same moment",
     {{.id = "x", .quota = "n"}, {.id = "y", .quota = "n"}, {.id = "z", .quota = "other"}},
     {"a", "b", "c"},
     3,
     {{"x", {"a"}}, {"z", {"b"}}},
     {{"y", "namespace n may hold 1 worker at once: 1 is held, it needs 1"}},
     {},
     {{"n", 1}}},
    {"a job that needs more than its namespace's quota learns that",
     {{.id = "x", .degree = 8, .quota = "research"}, {.id = "y"}},
     {"a"},
     8,
     {{"y", {"a"}}},
     {{"x", "needs 8 workers, namespace research may hold 4 at once"}},
     {},
     {{"research", 4}}},
    {"a folder has one writer, and the next keeps nobody waiting",
     {{.id = "x", .degree = 2, .folder = "f"}, {.id = "y", .folder = "g"}},
     {"a"},
     2,
     {{"y", {"a"}}},
     {{"x", "waits for job a-1, which writes to the same checkpoint.directory"}},
     {{"a-1", 1, "", "f"}}},
    {"a folder has one writer, also among those that could start in the same moment",
     {{.id = "x", .folder = "f"}, {.id = "y", .folder = "f"}, {.id = "z"}},
     {"a", "b"},
     2,
     {{"x", {"a"}}, {"z", {"b"}}},
     {{"y", "waits for job x, which writes to the same checkpoint.directory"}}},
    {"no folder is no common folder",
     {{"x"}, {"y"}},
     {"a", "b"},
     3,
     {{"x", {"a"}}, {"y", {"b"}}},
     {},
     {{"r", 1}}},

    // Who passes the first that waits only for others to end.
    {"a small job that ends in time passes",
     {{"x", 3}, {.id = "y", .seconds = 300}},
     {"a", "b"},
     4,
     {{"y", {"a"}}},
     {{"x", "needs 3 workers, 2 of 4 are free, expected in about 5 min"}},
     {{.id = "r", .workers = 2, .seconds_left = 300}}},
    {"several pass while there is room, none without",
     {{"x", 4},
      {.id = "y", .degree = 2, .seconds = 9},
      {.id = "z", .degree = 2, .seconds = 9},
      {.id = "w", .seconds = 9}},
     {"a", "b", "c"},
     4,
     {{"y", {"a", "b"}}, {"w", {"c"}}},
     {{"x", "needs 4 workers, 3 of 4 are free, expected in about 40 s"}, {"z", "waits behind job x"}},
     {{.id = "r", .workers = 1, .seconds_left = 40}}},
    {"a long job does not delay the first, whatever ends later",
     {{"x", 4}, {.id = "y", .seconds = 10801}},
     {"a", "b"},
     5,
     {},
     {{"x", "needs 4 workers, 2 of 5 are free, expected in about 3 h"}, {"y", "waits behind job x"}},
     {{.id = "r", .workers = 2, .seconds_left = 10800}, {.id = "s", .workers = 1, .seconds_left = 10801}}},
    {"small jobs of unknown length do not pass a large one for ever",
     {{"x", 4}, {"y"}, {"z"}, {.id = "w", .seconds = 10}},
     {"a"},
     4,
     {{"w", {"a"}}},
     {{"x", "needs 4 workers, 1 of 4 is free, expected in about 10 s"},
      {"y", "waits behind job x"},
      {"z", "waits behind job x"}},
     {{.id = "r", .workers = 3, .seconds_left = 10}}},
    {"a long job passes on the workers that the first will not need, while there are some",
     {{"x", 3}, {.id = "y", .seconds = 9000}, {"z"}},
     {"a", "b"},
     4,
     {{"y", {"a"}}},
     {{"x", "needs 3 workers, 2 of 4 are free, expected in about 5 min"}, {"z", "waits behind job x"}},
     {{.id = "r", .workers = 2, .seconds_left = 300}}},
    {"a short job leaves those workers to a long one",
     {{"x", 3}, {.id = "y", .seconds = 10}, {"z"}},
     {"a", "b"},
     4,
     {{"y", {"a"}}, {"z", {"b"}}},
     {{"x", "needs 3 workers, 2 of 4 are free, expected in about 5 min"}},
     {{.id = "r", .workers = 2, .seconds_left = 300}}},
    {"those that end in the same moment count together",
     {{"x", 2}, {"y"}},
     {"a"},
     3,
     {{"y", {"a"}}},
     {{"x", "needs 2 workers, 1 of 3 is free, expected in about 90 s"}},
     {{.id = "r", .workers = 1, .seconds_left = 90}, {.id = "s", .workers = 1, .seconds_left = 90}}},
    {"the earliest end that makes enough room counts, in whichever order the running come",
     {{"x", 3}, {.id = "y", .seconds = 100}, {.id = "z", .seconds = 101}},
     {"a"},
     5,
     {{"y", {"a"}}},
     {{"x", "needs 3 workers, 1 of 5 is free, expected in about 100 s"}, {"z", "waits behind job x"}},
     {{.id = "q", .workers = 2},
      {.id = "r", .workers = 1, .seconds_left = 100},
      {.id = "s", .workers = 1, .seconds_left = 7}}},
    {"nobody passes while it is not known when a job ends that the first waits for",
     {{"x", 4}, {.id = "y", .seconds = 1}},
     {"a"},
     4,
     {},
     {{"x", "needs 4 workers, 1 of 4 is free"}, {"y", "waits behind job x"}},
     {{.id = "r", .workers = 2, .seconds_left = 300}, {.id = "s", .workers = 1}}},
    {"nobody passes while the first waits for a worker that is neither free nor held",
     {{"x", 3}, {.id = "y", .seconds = 1}},
     {"a"},
     3,
     {},
     {{"x", "needs 3 workers, 1 of 3 is free"}, {"y", "waits behind job x"}},
     {{.id = "r", .workers = 1, .seconds_left = 300}}},
    {"a job that starts in the same moment counts as running",
     {{.id = "w", .degree = 2, .seconds = 60},
      {"x", 3},
      {.id = "y", .seconds = 60},
      {.id = "z", .seconds = 60}},
     {"a", "b", "c"},
     3,
     {{"w", {"a", "b"}}, {"y", {"c"}}},
     {{"x", "needs 3 workers, 1 of 3 is free, expected in about 60 s"}, {"z", "waits behind job x"}}},
    {"nobody passes while a job is overdue that the first waits for",
     {{"x", 2}, {.id = "y", .seconds = 1}},
     {"a"},
     3,
     {},
     {{"x", "needs 2 workers, 1 of 3 is free"}, {"y", "waits behind job x"}},
     {{.id = "r", .workers = 1, .seconds_left = -50}, {.id = "s", .workers = 1, .seconds_left = -1}}},
    {"workers that will take no other job are not counted as left over",
     {{"x", 2}, {"y"}},
     {"a"},
     2,
     {},
     {{"x", "needs 2 workers, 1 of 2 is free, expected in about 20 s"}, {"y", "waits behind job x"}},
     {{.id = "r", .workers = 3, .seconds_left = 20}},
     {},
     2},
    {"nobody passes into the folder of one that waits for its turn",
     {{.id = "x", .degree = 2, .folder = "f"},
      {.id = "y", .folder = "g"},
      {.id = "v", .folder = "f", .seconds = 1},
      {.id = "w", .folder = "g", .seconds = 1}},
     {"a"},
     2,
     {},
     {{"x", "needs 2 workers, 1 of 2 is free, expected in about 20 s"},
      {"y", "waits behind job x"},
      {"v", "waits behind job x"},
      {"w", "waits behind job y"}},
     {{.id = "r", .workers = 1, .seconds_left = 20}}},
    {"nobody passes on what the first needs of their quota",
     {{.id = "x", .degree = 2, .quota = "n"},
      {.id = "y", .quota = "n", .seconds = 1},
      {.id = "z", .seconds = 1}},
     {"a"},
     2,
     {{"z", {"a"}}},
     {{"x", "needs 2 workers, 1 of 2 is free, expected in about 20 s"}, {"y", "waits behind job x"}},
     {{.id = "r", .workers = 1, .seconds_left = 20}},
     {{"n", 2}}},
};

TEST(Policy, DecidesAsTheTableSays) {
  for (const Row& row : kRows) {
    SCOPED_TRACE(row.why);
    ClusterPicture picture{row.waiting, {}, row.alive, row.running, row.quotas, row.drained};
    for (const std::string& worker : row.free) {  // "name" or "name@node"
      const size_t at = worker.find('@');
      picture.free.push_back({worker.substr(0, at), at == std::string::npos ? "" : worker.substr(at + 1)});
    }
    const Decisions decisions = Decide(picture);
    std::vector<std::pair<std::string, std::vector<std::string>>> start;
    for (const auto& decision : decisions.start) start.emplace_back(decision.job, decision.workers);
    std::vector<std::pair<std::string, std::string>> wait;
    for (const auto& decision : decisions.wait) wait.emplace_back(decision.job, decision.reason);
    EXPECT_EQ(start, row.start);
    EXPECT_EQ(wait, row.wait);
  }
}

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
  ClusterPicture picture{{}, {}, static_cast<int>(workers_.size()), {}, quotas_};
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
    if (busy.count(worker) == 0) picture.free.push_back({worker, worker.substr(0, 1 + worker.back() % 2)});
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
  for (const FreeWorker& worker : before.free) free.insert(worker.name);
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
/// since, may take its place: then it may count on nothing any more.
void Simulation::Promise(const Decisions& decisions) {
  std::vector<Life*> ahead;
  Life* head = nullptr;
  for (const Decisions::Start& start : decisions.start) ahead.push_back(&Named(start.job));
  for (const Decisions::Wait& wait : decisions.wait) {
    if (wait.reason.find(" free") == std::string::npos) continue;
    ASSERT_EQ(head, nullptr) << wait.job << " is a second head";
    ahead.push_back(head = &Named(wait.job));
  }
  for (Life& life : lives_) {
    if (!life.promised || life.began) continue;
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
