#include "worker/telemetry/timeline.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "worker/telemetry/chrome_trace.h"

namespace metp {
namespace {

using Json = nlohmann::json;

/// Events of one phase.
std::vector<Json> Events(const std::string& trace, const std::string& phase) {
  std::vector<Json> events;
  const Json whole = Json::parse(trace);
  for (const Json& event : whole.at("traceEvents")) {
    if (event.at("ph") == phase) events.push_back(event);
  }
  return events;
}

/// Values of one kind of metadata, in order.
std::vector<Json> Metadata(const std::string& trace, const std::string& kind, const std::string& key) {
  std::vector<Json> values;
  for (const Json& event : Events(trace, "M")) {
    if (event.at("name") == kind) values.push_back(event.at("args").at(key));
  }
  return values;
}

TEST(Timeline, IsAChromeTraceInMicrosecondsFromItsFirstSpan) {
  Timeline timeline;
  EXPECT_TRUE(timeline.empty());
  timeline.Add(Stream::kRing, "mlp_forward", 100.25, 0.5);
  timeline.Add(Stream::kCompute, "mlp_forward", 100.5, 0.25);
  timeline.Add(Stream::kWait, "mlp_forward", 100.75, 0.125, kSkew);
  timeline.Add(Stream::kHost, "nothing", 101, 0);  // left out
  const std::string trace = timeline.ToChromeTrace("rank 0 \"x\"\n");
  EXPECT_EQ(Metadata(trace, "process_name", "name"), std::vector<Json>({"rank 0 \"x\"\n"}));
  EXPECT_EQ(Metadata(trace, "thread_name", "name"), std::vector<Json>({"compute", "wait", "ring"}));
  const std::vector<Json> spans = Events(trace, "X");
  ASSERT_EQ(spans.size(), 3u);
  EXPECT_EQ(spans[0].at("ts"), 250000);
  EXPECT_EQ(spans[0].at("dur"), 250000);
  EXPECT_EQ(spans[1].at("name"), "mlp_forward, skew");
  EXPECT_EQ(spans[1].at("ts"), 500000);
  EXPECT_EQ(spans[2].at("ts"), 0);
  EXPECT_NE(spans[0].at("tid"), spans[2].at("tid"));
}

TEST(ChromeTrace, HasAProcessForEachRankAndItsTracksInOneOrder) {
  ChromeTrace trace;
  EXPECT_EQ(Events(trace.Text(), "X").size(), 0u);
  trace.AddProcess(1, "rank 1");
  trace.AddProcess(0, "rank 0");
  const double now = 1.8e9;  // Unix time
  trace.AddSpan(1, "ring", "hop", now + 2, 1);
  trace.AddSpan(1, "step", "step 7", now + 1, 3);
  trace.AddSpan(1, "another", "x", now + 1, 1);
  trace.AddSpan(0, "host", "AdamW", now, 1);
  trace.AddSpan(0, "wait", "w", now + 1, 1);
  EXPECT_EQ(trace.spans(), 5);
  const std::string text = trace.Text();
  EXPECT_EQ(Metadata(text, "process_name", "name"), std::vector<Json>({"rank 0", "rank 1"}));
  EXPECT_EQ(Metadata(text, "thread_name", "name"),
            std::vector<Json>({"wait", "host", "step", "ring", "another"}));
  EXPECT_EQ(Metadata(text, "thread_sort_index", "sort_index"), std::vector<Json>({0, 1, 0, 1, 2}));
  for (const Json& span : Events(text, "X")) {
    EXPECT_GE(span.at("ts").get<double>(), 0);
    EXPECT_NEAR(span.at("dur").get<double>(), span.at("name") == "step 7" ? 3e6 : 1e6, 1);
  }
}

TEST(ChromeTrace, SpansThatRoundingLetsOverlapAreBesideEachOther) {
  ChromeTrace trace;
  trace.AddSpan(0, "compute", "b", 1.000000, 1);
  trace.AddSpan(0, "compute", "a", 0.000000, 1.000002);  // in whatever order they come
  trace.AddSpan(0, "compute", "outer", 3, 1);
  trace.AddSpan(0, "compute", "inner", 3.25, 0.5);  // within another
  const std::vector<Json> spans = Events(trace.Text(), "X");
  ASSERT_EQ(spans.size(), 4u);
  EXPECT_EQ(spans[0].at("name"), "a");
  EXPECT_EQ(spans[0].at("dur"), 1000000);
  EXPECT_EQ(spans[2].at("dur"), 1000000);
}

}  // namespace
}  // namespace metp
