#include "server/scheduler/policy.h"

#include <gmock/gmock.h>

namespace metp {
namespace {

struct Row {
  const char* why;
  std::vector<WaitingJob> waiting;
  std::vector<std::string> free;
  int alive;
  std::vector<std::pair<std::string, std::vector<std::string>>> start;
  std::vector<std::pair<std::string, std::string>> wait;
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
};

TEST(Policy, DecidesAsTheTableSays) {
  for (const Row& row : kRows) {
    SCOPED_TRACE(row.why);
    ClusterPicture picture{row.waiting, {}, row.alive};
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

}  // namespace
}  // namespace metp
