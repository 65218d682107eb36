// metpctl trace: the timelines of real ranks in one file, and what becomes of it where they cannot be had.

#include <gmock/gmock.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "nlohmann/json.hpp"
#include "tests/e2e/small_job.h"
#include "tests/support/await_file.h"

namespace metp {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::MatchesRegex;

constexpr double kRounding = 5;  // microseconds, of Unix times and of a trace's

struct Span {
  std::string name;
  double begin, end;
};

/// A Chrome trace, by process and track.
struct Trace {
  explicit Trace(const std::string& text) {
    const nlohmann::json events = nlohmann::json::parse(text).at("traceEvents");
    std::map<std::pair<int, int>, std::string> names;
    for (const auto& event : events) {
      if (event.at("name") == "process_name") processes[event.at("pid")] = event.at("args").at("name");
      if (event.at("name") == "thread_name")
        names[{event.at("pid"), event.at("tid")}] = event.at("args").at("name");
    }
    for (const auto& event : events) {
      if (event.at("ph") != "X") continue;
      const double begin = event.at("ts"), seconds = event.at("dur");
      tracks[event.at("pid")][names.at({event.at("pid"), event.at("tid")})].push_back(
          {event.at("name"), begin, begin + seconds});
    }
  }
  std::set<std::string> Names(int rank, const std::string& track) {
    std::set<std::string> found;
    for (const Span& span : tracks[rank][track]) found.insert(span.name);
    return found;
  }

  std::map<int, std::string> processes;
  std::map<int, std::map<std::string, std::vector<Span>>> tracks;
};

std::string Read(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(Trace, ShowsEveryRankAndPassOnOneTimeAxis) {
  Cluster cluster({});
  const auto watch = cluster.StartCtl({"submit", "-f", WriteJob(cluster.folder(), 100000), "--watch"});
  ASSERT_NE(watch->ReadUntil("step 1/"), "");
  const std::string file = cluster.folder() + "/trace.json";
  const Subprocess::Exit traced = cluster.Ctl({"trace", "small", "--steps", "2", "-o", file});
  ASSERT_EQ(traced.code, 0) << traced.error;
  EXPECT_THAT(traced.out,
              MatchesRegex(file + ": steps [0-9]+ and [0-9]+ of 4 ranks, [0-9,]+ spans; open it at "
                                  "https://ui.perfetto.dev\n"));
  Trace trace(Read(file));
  ASSERT_EQ(trace.processes.size(), 4u);
  std::vector<double> begins, ends;  // of the first step
  for (int rank = 0; rank < 4; ++rank) {
    const std::string number = std::to_string(rank);
    EXPECT_EQ(trace.processes[rank], "rank " + number + " (worker cpu-" + number + ")");
    const std::vector<Span>& steps = trace.tracks[rank]["step"];
    ASSERT_EQ(steps.size(), 2u);
    EXPECT_EQ(steps[0].name, trace.tracks[0]["step"][0].name);
    EXPECT_EQ(steps[1].name, trace.tracks[0]["step"][1].name);
    EXPECT_LE(steps[0].end, steps[1].begin + kRounding);
    begins.push_back(steps[0].begin);
    ends.push_back(steps[0].end);
    const std::set<std::string> passes = {"embedding_forward", "attention_forward",  "mlp_forward",
                                          "loss_forward",      "loss_backward",      "mlp_backward",
                                          "output_projection", "attention_backward", "embedding_backward"};
    EXPECT_THAT(trace.Names(rank, "compute"), IsSupersetOf(passes));
    EXPECT_THAT(trace.Names(rank, "ring"), IsSupersetOf(passes));
    for (const auto& [track, spans] : trace.tracks[rank]) {
      std::map<std::string, double> seconds;  // by step
      for (const Span& span : spans) {
        const auto in = std::find_if(steps.begin(), steps.end(), [&](const Span& step) {
          return step.begin - kRounding <= span.begin && span.end <= step.end + kRounding;
        });
        ASSERT_NE(in, steps.end()) << track << ": " << span.name << " is within no step";
        seconds[in->name] += span.end - span.begin;
      }
      // Spans of a stream are beside each other, so that they fit into the step.
      for (const Span& step : steps) {
        EXPECT_LE(seconds[step.name],
                  (step.end - step.begin) + kRounding * static_cast<double>(spans.size()));
      }
    }
  }
  // A step ends with a sum over all ranks: every rank began it before any had done it.
  EXPECT_LT(*std::max_element(begins.begin(), begins.end()), *std::min_element(ends.begin(), ends.end()));

  const Subprocess::Exit piped = cluster.Ctl({"trace", "small", "--steps", "1", "-o", "-"});
  ASSERT_EQ(piped.code, 0) << piped.error;
  EXPECT_THAT(piped.error, MatchesRegex("step [0-9]+ of 4 ranks, [0-9,]+ spans; .*\n"));
  EXPECT_EQ(Trace(piped.out).tracks[3]["step"].size(), 1u);
  cluster.Ctl({"cancel", "small"});
  EXPECT_EQ(watch->Wait().code, 4);
}

TEST(Trace, LeavesNothingBesideItsFileWhenInterrupted) {
  Cluster cluster({.workers = 1, .rank_program = "metp-fake-rank"});
  const std::string file = cluster.folder() + "/trace.json";
  const auto watch = cluster.StartCtl(
      {"submit", "-f", cluster.ScriptedJob("idle", 1, "all: steps 1\nall: hang\n"), "--watch"});
  ASSERT_NE(watch->ReadUntil("step 1/"), "");
  for (const int signal : {SIGINT, SIGTERM}) {
    const auto waiting = cluster.StartCtl({"trace", "idle", "-o", file});
    AwaitFile(file + "." + std::to_string(waiting->pid()) + ".part");
    waiting->Signal(signal);
    EXPECT_EQ(waiting->Wait().code, 130);
    for (const auto& entry : std::filesystem::directory_iterator(cluster.folder()))
      EXPECT_THAT(entry.path().filename().string(), ::testing::Not(HasSubstr("trace.json")));
  }
  cluster.Ctl({"cancel", "idle"});
  EXPECT_EQ(watch->Wait().code, 4);
}

TEST(Trace, LeavesNoFileWhereThereIsNone) {
  Cluster cluster({.workers = 2, .rank_program = "metp-fake-rank"});
  const std::string traces = cluster.folder() + "/traces", end = cluster.folder() + "/end";
  const std::string file = cluster.folder() + "/trace.json";
  const auto trace = [&](std::vector<std::string> more) {
    std::vector<std::string> command = {"trace", "half", "-o", file};
    command.insert(command.end(), more.begin(), more.end());
    return cluster.Ctl(command);
  };
  EXPECT_EQ(trace({}).code, 6);
  const std::string job = cluster.ScriptedJob(
      "half", 2,
      "0: trace\n0: touch " + traces + "\nall: steps 1\n0: hang\n1: await " + end + "\n1: kill 9\n");
  const auto watch = cluster.StartCtl({"submit", "-f", job, "--watch"});
  AwaitFile(traces);
  ASSERT_NE(watch->ReadUntil("step 1/"), "");
  // Rank 1 is of an older worker, as it were: it does not answer.
  const Subprocess::Exit late = trace({"--timeout", "1"});
  EXPECT_EQ(late.code, 5);
  EXPECT_THAT(late.error,
              AllOf(HasSubstr("no whole trace within 1 s (--timeout): nothing came of rank 1 on cpu-1"),
                    ::testing::Not(HasSubstr("rank 0"))));
  EXPECT_EQ(trace({"--steps", "17"}).code, 2);
  EXPECT_EQ(cluster.Ctl({"trace", "half"}).code, 2);
  const Subprocess::Exit nowhere = cluster.Ctl({"trace", "half", "-o", cluster.folder() + "/no/trace.json"});
  EXPECT_EQ(nowhere.code, 7);
  EXPECT_THAT(nowhere.error, HasSubstr("/no: No such file or directory"));
  for (const std::string& path : {cluster.folder(), file + "/", file + std::string(240, 'x')})
    EXPECT_EQ(cluster.Ctl({"trace", "half", "-o", path}).code, 7) << path;

  const auto waiting = cluster.StartCtl({"trace", "half", "-o", file});
  while (cluster.Ctl({"logs", "half"}).out != "[0] traces\n[0] traces\n") {
  }
  const auto beside = [&] {
    return std::filesystem::exists(file + "." + std::to_string(waiting->pid()) + ".part");
  };
  EXPECT_TRUE(beside());
  std::ofstream(end).flush();
  const Subprocess::Exit ended = waiting->Wait();
  EXPECT_EQ(ended.code, 5);
  EXPECT_THAT(ended.error, HasSubstr("half-1/1 has ended before its ranks had sent 2 whole steps"));
  EXPECT_EQ(watch->Wait().code, 1);
  EXPECT_FALSE(beside());
  const Subprocess::Exit over = trace({});
  EXPECT_EQ(over.code, 5);
  EXPECT_THAT(over.error, HasSubstr("found FAILED, expected RUNNING"));
  for (const auto& entry : std::filesystem::directory_iterator(cluster.folder()))
    EXPECT_THAT(entry.path().filename().string(), ::testing::Not(HasSubstr("trace.json")));
}

}  // namespace
}  // namespace metp
