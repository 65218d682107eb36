#pragma once

// Faults at random moments, on the real programs: every job must end as if there had been none.
//
// METP_CHAOS_SEED repeats a run's choices; when which fault meets which step is the machine's.

#include <gmock/gmock.h>
#include <sched.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <random>
#include <set>
#include <sstream>
#include <thread>

#include "nlohmann/json.hpp"
#include "tests/support/cluster.h"

namespace metp {

namespace fs = std::filesystem;
using nlohmann::json;
using std::chrono::milliseconds;

inline constexpr int kWorkers = 4;
inline constexpr char kToken[] = "METP_CHAOS_TOKEN";

/// A network of its own, in which the workers' ranks have addresses that can be taken away. False: not allowed here.
inline bool EnterOwnNetwork() { return unshare(CLONE_NEWNET) == 0 && std::system("ip link set lo up") == 0; }
inline std::string AddressOf(int worker) { return "10.99.0." + std::to_string(worker + 1); }
/// What is sent to or from it is lost without a word.
inline void SetReachable(int worker, bool reachable) {
  const std::string command =
      std::string("ip addr ") + (reachable ? "add " : "del ") + AddressOf(worker) + "/32 dev lo";
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
}

/// Processes with our token in their environment, by program name.
inline std::multiset<std::string> OwnProcesses(const std::string& token) {
  std::multiset<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/proc", error)) {
    std::ifstream file(entry.path() / "environ", std::ios::binary);
    const std::string environment{std::istreambuf_iterator<char>(file), {}};
    if (environment.find(std::string(kToken) + "=" + token) == std::string::npos) continue;
    std::ifstream name(entry.path() / "comm");
    std::string line;
    if (std::getline(name, line)) names.insert(line);
  }
  return names;
}

class Chaos : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* given = std::getenv("METP_CHAOS_SEED");
    seed_ = given != nullptr ? static_cast<unsigned>(std::stoul(given)) : std::random_device{}();
    std::cout << "METP_CHAOS_SEED=" << seed_ << std::endl;
    random_.seed(seed_);
    token_ = std::to_string(seed_) + "-" + std::to_string(getpid());
    setenv(kToken, token_.c_str(), 1);
    own_network_ = EnterOwnNetwork();
    if (!own_network_)
      std::cout << "no network of its own allowed here: no ring link goes silent in this run" << std::endl;
    for (int i = 0; own_network_ && i < kWorkers; ++i) SetReachable(i, true);
  }

  int Any(int below) { return static_cast<int>(random_() % static_cast<unsigned>(below)); }
  /// Faults need real time to meet real steps.
  void Pause(int least_ms, int most_ms) {
    std::this_thread::sleep_for(milliseconds(least_ms + Any(most_ms - least_ms)));
  }

  std::string WriteJob(int number, int steps) {
    const std::string folder = cluster_->folder(), name = "job" + std::to_string(number);
    std::ofstream text(folder + "/" + name + ".txt");
    for (int i = 0; i < 600; ++i)
      text << "line " << i * (number + 3) << " of a text that a model learns by heart\n";
    const std::string path = folder + "/" + name + ".yaml";
    std::ofstream(path) << "name: " << name << "\n"
                        << "model: {family: llama, layers: 2, hidden: 48, heads: 4, kv_heads: 2, ffn: 96}\n"
                        << "data: {source: [" << name << ".txt], sequence_length: 256, seed: " << number + 1
                        << "}\n"
                        << "train: {steps: " << steps << ", learning_rate: 0.002, warmup_steps: 5}\n"
                        << "parallel: {degree: 2" << (number % 2 == 1 ? ", min_degree: 1" : "") << "}\n"
                        << "checkpoint: {directory: " << Saved(number) << ", every_steps: 25, keep: 3}\n"
                        << "max_restarts: 1000\n";
    return path;
  }
  std::string Saved(int number) const { return cluster_->folder() + "/saved" + std::to_string(number); }

  /// The running ranks: job, rank, process.
  struct Rank {
    std::string job;
    int worker = 0;
    pid_t pid = 0;
  };
  std::vector<Rank> Ranks() {
    std::vector<Rank> ranks;
    const Subprocess::Exit workers = cluster_->Ctl({"workers", "-o", "json"});
    if (workers.code != 0) return ranks;
    std::set<std::string> jobs;
    for (const json& worker : json::parse(workers.out).value("workers", json::array())) {
      if (worker.value("job", "") != "") jobs.insert(worker["job"].get<std::string>());
    }
    for (const std::string& job : jobs) {
      const Subprocess::Exit status = cluster_->Ctl({"get", job, "-o", "json"});
      if (status.code != 0) continue;
      for (const json& rank : json::parse(status.out).value("ranks", json::array())) {
        if (rank.value("state", "") == "GONE" || !rank.contains("pid")) continue;
        ranks.push_back(
            {job, std::stoi(rank["worker"].get<std::string>().substr(4)), rank["pid"].get<pid_t>()});
      }
    }
    return ranks;
  }
  /// A signal to a rank that runs; false if there is none.
  bool SignalRank(int signal) {
    const std::vector<Rank> ranks = Ranks();
    if (ranks.empty()) return false;
    return kill(ranks[static_cast<size_t>(Any(static_cast<int>(ranks.size())))].pid, signal) == 0;
  }

  /// Spoils the newest checkpoint of a running job, then kills one of its ranks, so that it is needed.
  bool SpoilACheckpoint() {
    const std::vector<Rank> ranks = Ranks();
    if (ranks.empty()) return false;
    const Rank rank = ranks[static_cast<size_t>(Any(static_cast<int>(ranks.size())))];
    const std::string folder = Saved(std::stoi(rank.job.substr(3)));  // job3-4
    std::set<std::string> complete;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(folder, error)) {
      const std::string name = entry.path().filename();
      if (name.rfind("step-", 0) == 0 && name.find('.') == std::string::npos) complete.insert(entry.path());
    }
    if (complete.size() < 2) return false;  // the last whole one is not ours to break
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(*complete.rbegin(), error)) files.push_back(entry.path());
    if (files.empty()) return false;
    const fs::path file = files[static_cast<size_t>(Any(static_cast<int>(files.size())))];
    const auto size = fs::file_size(file, error);
    if (error || size == 0) return false;
    if (Any(2) == 0) {
      fs::resize_file(file, size - 1, error);
    } else {
      std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
      const auto at = static_cast<std::streamoff>(random_() % size);
      bytes.seekg(at);
      const char flipped = static_cast<char>(bytes.get() ^ 1);
      bytes.seekp(at);
      bytes.put(flipped);
    }
    kill(rank.pid, SIGKILL);
    return true;
  }
  /// For a while there is no folder where one should be.
  bool HideCheckpoints() {
    const std::vector<Rank> ranks = Ranks();
    if (ranks.empty()) return false;
    const std::string folder = Saved(std::stoi(ranks.front().job.substr(3)));
    std::error_code error;
    fs::rename(folder, folder + ".away", error);
    if (error) return false;
    std::ofstream(folder) << "in the way\n";
    Pause(500, 1500);
    fs::remove(folder);
    fs::rename(folder + ".away", folder);
    return true;
  }
  bool RestartAWorker(int signal) {
    const int i = Any(kWorkers);
    cluster_->worker(i).Signal(signal);
    const int code = cluster_->worker(i).Wait().code;
    EXPECT_EQ(code, signal == SIGTERM ? 0 : 128 + signal);
    Pause(0, 3000);
    cluster_->RestartWorker(i);
    return true;
  }
  bool Freeze(Subprocess& program, int least_ms, int most_ms) {
    program.Signal(SIGSTOP);
    Pause(least_ms, most_ms);
    program.Signal(SIGCONT);
    return true;
  }
  bool SilenceALink() {
    if (!own_network_) return false;
    const int i = Any(kWorkers);
    SetReachable(i, false);
    Pause(5000, 6000);
    SetReachable(i, true);
    return true;
  }

  struct Fault {
    const char* name;
    std::function<bool()> act;  // false: there was nothing to meet
  };
  std::vector<Fault> Faults() {
    return {{"a rank is killed", [this] { return SignalRank(SIGKILL); }},
            {"a rank crashes", [this] { return SignalRank(SIGSEGV); }},
            {"a rank hangs", [this] { return SignalRank(SIGSTOP); }},
            {"a rank is asked to leave", [this] { return SignalRank(SIGTERM); }},
            {"a worker is killed", [this] { return RestartAWorker(SIGKILL); }},
            {"a worker is asked to leave", [this] { return RestartAWorker(SIGTERM); }},
            {"the coordinator is killed",
             [this] {
               cluster_->coordinator().Signal(SIGKILL);
               Pause(0, 2000);
               cluster_->RestartCoordinator();
               return true;
             }},
            {"a worker is cut off", [this] { return Freeze(cluster_->worker(Any(kWorkers)), 1000, 6000); }},
            {"the coordinator is cut off", [this] { return Freeze(cluster_->coordinator(), 1000, 6000); }},
            {"a checkpoint is spoilt", [this] { return SpoilACheckpoint(); }},
            {"a checkpoint folder is in no state to be written", [this] { return HideCheckpoints(); }},
            {"a ring link falls silent", [this] { return SilenceALink(); }}};
  }

  /// What a job should have learned, by a run that nothing disturbed.
  static std::vector<double> Undisturbed(const std::string& file) {
    const Subprocess::Exit alone = RunProgram(
        {Cluster::Program("metp-rank"), "run", "-f", file, "--comm", "local", "--threads", "1", "--set",
         "checkpoint.resume=none", "--set", "checkpoint.directory=" + file + ".alone", "-o", "json"});
    EXPECT_EQ(alone.code, 0) << alone.error;
    fs::remove_all(file + ".alone");
    return alone.code == 0 ? json::parse(alone.out)["losses"].get<std::vector<double>>()
                           : std::vector<double>{};
  }

  void ExpectAsIfUndisturbed(const std::string& job, const std::vector<double>& expected) {
    SCOPED_TRACE(job);
    const Subprocess::Exit events = cluster_->Ctl({"events", job, "-o", "json"});
    ASSERT_EQ(events.code, 0) << events.error;
    const Subprocess::Exit watch = cluster_->Ctl({"watch", job, "-o", "json"});
    EXPECT_EQ(watch.code, 0) << events.out;
    bool replanned = false;
    size_t exact = expected.size();  // steps up to there must be the same, bit for bit
    int restarts = 0;
    for (const json& event : json::parse(events.out).value("events", json::array())) {
      const std::string kind = event.value("kind", ""), text = event.value("text", "");
      replanned = replanned || kind == "REPLANNED";
      size_t after = 0;
      if (replanned && std::sscanf(text.c_str(), "attempt %*d goes on after step %zu", &after) == 1)
        exact = std::min(exact, after);
      if (kind != "RESTART" && kind != "REQUEUED") continue;
      ++restarts;
      EXPECT_NE(text, "");
    }
    if (replanned && exact == expected.size()) exact = 0;
    size_t step = 0;
    std::istringstream lines(watch.out);
    for (std::string line; std::getline(lines, line);) {
      const json point = json::parse(line);
      if (!point.contains("step")) {
        EXPECT_EQ(point["status"].value("restarts", 0), restarts);
        continue;
      }
      ASSERT_EQ(point["step"], ++step);
      if (step > expected.size()) continue;
      const double loss = point["loss"];
      if (step <= exact) {
        ASSERT_EQ(loss, expected[step - 1]) << "step " << step << "\n" << events.out;
      } else {
        ASSERT_NEAR(loss, expected[step - 1], 2e-3) << "step " << step << "\n" << events.out;
      }
    }
    EXPECT_EQ(step, expected.size());
  }

  void Run(int jobs, int steps, int faults) {
    Cluster::Options options;
    options.workers = kWorkers;
    options.coordinator = {
        "--state",           state_.path(), "--suspect-after-ms", "1500",  "--lease-ms",           "3000",
        "--hang-floor-ms",   "4000",        "--start-timeout-ms", "15000", "--restart-backoff-ms", "200",
        "--replan-after-ms", "1500"};
    options.worker = {"--checkpoint-grace-ms", "5000"};
    if (own_network_)
      options.worker_of = [](int i) { return std::vector<std::string>{"--address", AddressOf(i)}; };
    cluster_ = std::make_unique<Cluster>(options);
    std::vector<std::string> ids;
    std::vector<std::vector<double>> expected;
    for (int i = 0; i < jobs; ++i) {
      const std::string file = WriteJob(i, steps);
      expected.push_back(Undisturbed(file));
      ASSERT_EQ(expected.back().size(), static_cast<size_t>(steps));
    }
    for (int i = 0; i < jobs; ++i) {
      const Subprocess::Exit submitted =
          cluster_->Ctl({"submit", "-f", cluster_->folder() + "/job" + std::to_string(i) + ".yaml"});
      ASSERT_EQ(submitted.code, 0) << submitted.error;
      ids.push_back(submitted.out.substr(0, submitted.out.find('\n')));
    }
    const std::vector<Fault> kinds = Faults();
    std::vector<Fault> order;  // every kind as often as any other
    for (int done = 0; done < faults;) {
      if (order.empty()) {
        order = kinds;
        std::shuffle(order.begin(), order.end(), random_);
      }
      const Fault fault = order.back();
      order.pop_back();
      Pause(300, 1500);
      if (Over(ids)) break;
      const bool met = fault.act();
      std::cout << "fault " << done << ": " << fault.name << (met ? "" : " (nothing to meet)") << std::endl;
      done += met ? 1 : 0;
      met_ += met ? 1 : 0;
    }
    for (int i = 0; i < kWorkers; ++i) cluster_->worker(i).Signal(SIGCONT);
    for (const std::string& id : ids) cluster_->StartCtl({"watch", id})->Wait(std::chrono::minutes(10));
    for (int i = 0; i < jobs; ++i)
      ExpectAsIfUndisturbed(ids[static_cast<size_t>(i)], expected[static_cast<size_t>(i)]);
    std::cout << met_ << " faults met" << std::endl;
    EXPECT_EQ(met_, faults) << "the jobs were over before their faults were";
    EXPECT_THAT(cluster_->Ctl({"workers"}).out, ::testing::Not(::testing::HasSubstr(" rank ")));
    EXPECT_EQ(OwnProcesses(token_).count("metp-rank"), 0u);
    ExpectNothingLeftBehind();
  }
  bool Over(const std::vector<std::string>& ids) {
    const Subprocess::Exit get = cluster_->Ctl({"get", "-o", "json"});
    if (get.code != 0) return false;
    size_t over = 0;
    for (const json& job : json::parse(get.out).value("jobs", json::array()))
      over += job.contains("finished") ? 1 : 0;
    return over >= ids.size();
  }
  void ExpectNothingLeftBehind() {
    for (const auto& entry : fs::recursive_directory_iterator(cluster_->folder())) {
      const std::string name = entry.path().filename();
      EXPECT_EQ(name.find(".partial"), std::string::npos) << entry.path();
    }
    cluster_.reset();
    for (const auto& entry : fs::directory_iterator(state_.path()))
      EXPECT_EQ(entry.path().filename().string().rfind("jobs.db", 0), 0u) << entry.path();
    EXPECT_THAT(OwnProcesses(token_), ::testing::Each(::testing::StartsWith("e2e_chaos")));
  }

  unsigned seed_ = 0;
  std::mt19937 random_;
  std::string token_;
  bool own_network_ = false;
  int met_ = 0;
  testing::TempFolder state_;
  std::unique_ptr<Cluster> cluster_;
};

}  // namespace metp
