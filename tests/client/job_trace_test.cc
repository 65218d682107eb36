// A job's timelines, put together.

#include "client/job_trace.h"

#include <gmock/gmock.h>

#include "nlohmann/json.hpp"

namespace metp {
namespace {

using Json = nlohmann::json;

v1::JobStatus Job(int ranks) {
  v1::JobStatus job;
  for (int rank = 0; rank < ranks; ++rank) {
    v1::RankStatus& status = *job.add_ranks();
    status.set_rank(rank);
    status.set_worker("cpu-" + std::to_string(rank));
  }
  return job;
}

/// One step of a rank: itself and a pass, in two parts.
v1::TraceChunk Step(int rank, int step) {
  v1::TraceChunk chunk;
  for (const bool last : {false, true}) {
    v1::TracePart& part = *chunk.add_parts();
    part.set_rank(rank);
    part.set_step(step);
    part.set_last(last);
    v1::TraceSpan& span = *part.add_spans();
    span.set_track(last ? "compute" : "step");
    span.set_name(last ? "mlp_forward" : "step " + std::to_string(step));
    span.set_start(1.8e9 + step + (last ? 0.25 : 0));
    span.set_seconds(last ? 0.5 : 1);
  }
  return chunk;
}

TEST(JobTrace, KeepsTheFirstStepsThatAllRanksHave) {
  JobTrace trace(Job(2), 2);
  for (const int step : {11, 12, 13, 14}) trace.Add(Step(0, step));
  EXPECT_FALSE(trace.complete());
  EXPECT_EQ(trace.Missing(), "nothing came of rank 1 on cpu-1");
  trace.Add(Step(1, 12));
  EXPECT_FALSE(trace.complete());
  EXPECT_EQ(trace.Missing(), "every rank has sent some, but not yet 2 that all have in a row");
  trace.Add(Step(1, 13));
  ASSERT_TRUE(trace.complete());
  EXPECT_EQ(trace.Summary(), "steps 12 and 13 of 2 ranks, 8 spans");
  std::map<int, std::vector<std::string>> spans;
  std::map<int, std::string> processes;
  const Json json = Json::parse(trace.ToChromeTrace());
  for (const Json& event : json.at("traceEvents")) {
    const int pid = event.at("pid");
    if (event.at("ph") == "X") spans[pid].push_back(event.at("name"));
    if (event.at("name") == "process_name") processes[pid] = event.at("args").at("name");
  }
  EXPECT_EQ(processes[1], "rank 1 (worker cpu-1)");
  for (const int rank : {0, 1})
    EXPECT_THAT(spans[rank],
                ::testing::UnorderedElementsAre("step 12", "step 13", "mlp_forward", "mlp_forward"));
}

TEST(JobTrace, TakesTheRanksThatSentStepsWhereTheJobWasStartedAgainMeanwhile) {
  JobTrace fewer(Job(3), 2), more(Job(1), 1), same(Job(1), 1);
  for (const int step : {3, 4}) {
    for (const int rank : {0, 1}) fewer.Add(Step(rank, step));
  }
  EXPECT_FALSE(fewer.complete());
  EXPECT_EQ(fewer.End(), "job  was started again meanwhile: 2 ranks have sent steps, expected 3");
  ASSERT_TRUE(fewer.complete());
  EXPECT_EQ(fewer.Summary(), "steps 3 and 4 of 2 ranks, 8 spans");
  EXPECT_THAT(fewer.ToChromeTrace(), ::testing::AllOf(::testing::HasSubstr("\"rank 1\""),
                                                      ::testing::Not(::testing::HasSubstr("rank 2")),
                                                      ::testing::Not(::testing::HasSubstr("worker"))));
  more.Add(Step(0, 3));
  more.Add(Step(1, 4));
  EXPECT_NE(more.End(), "");
  EXPECT_FALSE(more.complete());  // rank 1 began later
  more.Add(Step(0, 4));
  EXPECT_EQ(more.Summary(), "step 4 of 2 ranks, 4 spans");
  same.Add(Step(0, 3));
  EXPECT_EQ(same.End(), "");
}

TEST(JobTrace, CountsInWords) {
  JobTrace one(Job(1), 1), three(Job(1), 3);
  for (const int step : {7, 8, 9}) {
    one.Add(Step(0, step));
    three.Add(Step(0, step));
  }
  EXPECT_EQ(one.Summary(), "step 7 of 1 rank, 2 spans");
  EXPECT_EQ(three.Summary(), "steps 7 to 9 of 1 rank, 6 spans");
  EXPECT_THAT(JobTrace(Job(10), 1).Missing(), ::testing::EndsWith("rank 7 on cpu-7 and 2 more"));
}

}  // namespace
}  // namespace metp
