#include "worker/telemetry/timeline.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace metp {
namespace {

TEST(Timeline, IsAChromeTraceInMicrosecondsFromItsFirstSpan) {
  Timeline timeline;
  EXPECT_TRUE(timeline.empty());
  timeline.Add(Stream::kCompute, "mlp_forward", 100.5, 0.25);
  timeline.Add(Stream::kRing, "mlp_forward", 100.25, 0.5);
  timeline.Add(Stream::kRing, "nothing", 101, 0);  // left out
  const auto trace = nlohmann::json::parse(timeline.ToChromeTrace("rank 0 \"x\""));
  const auto& events = trace.at("traceEvents");
  ASSERT_EQ(events.size(), 5u);
  EXPECT_EQ(events[0].at("args").at("name"), "rank 0 \"x\"");
  EXPECT_EQ(events[1].at("args").at("name"), "compute");
  EXPECT_EQ(events[3].at("ph"), "X");
  EXPECT_EQ(events[3].at("ts"), 250000);
  EXPECT_EQ(events[3].at("dur"), 250000);
  EXPECT_EQ(events[4].at("ts"), 0);
  EXPECT_NE(events[3].at("tid"), events[4].at("tid"));
}

}  // namespace
}  // namespace metp
