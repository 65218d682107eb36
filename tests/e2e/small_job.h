#pragma once

// A small job for real ranks, and what it learns.

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/support/cluster.h"

namespace metp {

/// A small Llama on a text of its own. `steps` optimizer steps over 4 ranks.
inline std::string WriteJob(const std::string& folder, int steps) {
  std::ofstream text(folder + "/text.txt");
  for (int i = 0; i < 400; ++i) text << "line " << i << " of a text that a small model can learn by heart\n";
  const std::string path = folder + "/job.yaml";
  std::ofstream(path) << "name: small\n"
                      << "model: {family: llama, layers: 2, hidden: 64, heads: 4, kv_heads: 2, ffn: 128}\n"
                      << "data: {source: [text.txt], sequence_length: 256}\n"
                      << "train: {steps: " << steps << ", learning_rate: 0.003, warmup_steps: 2}\n"
                      << "parallel: {degree: 4}\n";
  return path;
}

/// Losses of a job's steps, in order; each step once.
inline std::vector<double> Losses(const Cluster& cluster, const std::string& job) {
  std::vector<double> losses;
  std::istringstream lines(cluster.Ctl({"watch", job, "-o", "json"}).out);
  for (std::string line; std::getline(lines, line);) {
    const nlohmann::json step = nlohmann::json::parse(line);
    if (!step.contains("step")) continue;
    EXPECT_EQ(step["step"], losses.size() + 1);
    losses.push_back(step["loss"]);
  }
  return losses;
}

/// What four ranks of one process have; empty if it failed, with the test.
inline std::vector<double> LossesAlone(const std::string& file) {
  const auto alone = RunProgram({Cluster::Program("metp-rank"), "run", "-f", file, "--ranks", "4", "--comm",
                                 "local", "--threads", "1", "-o", "json"});
  EXPECT_EQ(alone.code, 0) << alone.error;
  if (alone.code != 0) return {};
  return nlohmann::json::parse(alone.out)["losses"];
}

}  // namespace metp
