#include "tests/support/cluster.h"

#include <gtest/gtest.h>

#include <csignal>
#include <fstream>

#include "nlohmann/json.hpp"

namespace metp {

std::string Cluster::Program(const std::string& name) { return std::string(METP_BINARY_DIR) + "/" + name; }

Cluster::Cluster(const Options& options) : options_(options) {
  std::vector<std::string> command = {
      Program("metp-coordinator"), "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--ready-file",
      folder() + "/ready"};
  command.insert(command.end(), options_.coordinator.begin(), options_.coordinator.end());
  coordinator_ = std::make_unique<Subprocess>(command);
  EXPECT_NE(coordinator_->ReadUntil("listening on"), "");
  std::ifstream file(folder() + "/ready");
  const nlohmann::json ready = nlohmann::json::parse(file);
  address_ = ready["listen"];
  http_ = "http://" + ready["http"].get<std::string>();
  for (int i = 0; i < options_.workers; ++i) workers_.push_back(StartWorker("cpu-" + std::to_string(i)));
  for (auto& worker : workers_) {
    const std::string line = worker->ReadUntil(" ready: ");
    worker_metrics_.push_back(line.substr(line.find("http://")));
  }
}

Cluster::~Cluster() = default;

std::unique_ptr<Subprocess> Cluster::StartWorker(const std::string& name) const {
  std::vector<std::string> command = {Program("metp-worker"),
                                      "--coordinator",
                                      address_,
                                      "--name",
                                      name,
                                      "--http",
                                      "127.0.0.1:0",
                                      "--threads",
                                      "1",
                                      "--profile",
                                      "none",
                                      "--rank-program",
                                      Program(options_.rank_program)};
  command.insert(command.end(), options_.worker.begin(), options_.worker.end());
  if (options_.worker_of && name.rfind("cpu-", 0) == 0) {
    for (const std::string& argument : options_.worker_of(std::stoi(name.substr(4))))
      command.push_back(argument);
  }
  return std::make_unique<Subprocess>(command);
}

void Cluster::RestartWorker(int i) {
  workers_[i].reset();
  workers_[i] = StartWorker("cpu-" + std::to_string(i));
}

void Cluster::RestartCoordinator() {
  coordinator_.reset();
  std::vector<std::string> command = {Program("metp-coordinator"), "--listen", address_, "--http",
                                      http_.substr(std::string("http://").size())};
  command.insert(command.end(), options_.coordinator.begin(), options_.coordinator.end());
  coordinator_ = std::make_unique<Subprocess>(command);
}

std::unique_ptr<Subprocess> Cluster::StartCtl(const std::vector<std::string>& arguments) const {
  std::vector<std::string> command = {Program("metpctl")};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return std::make_unique<Subprocess>(
      command, Subprocess::Environment{{"METP_COORDINATOR", address_}, {"LC_ALL", "C"}});
}

Subprocess::Exit Cluster::Ctl(const std::vector<std::string>& arguments) const {
  return StartCtl(arguments)->Wait();
}

std::string Cluster::JobField(const std::string& job, const std::string& key) const {
  const Subprocess::Exit exit = Ctl({"get", job, "-o", "json"});
  EXPECT_EQ(exit.code, 0) << exit.error;
  nlohmann::json value = nlohmann::json::parse(exit.out);
  for (size_t at = 0; at <= key.size();) {
    const size_t dot = std::min(key.find('.', at), key.size());
    const std::string part = key.substr(at, dot - at);
    value = value.is_array() ? value.at(std::stoul(part)) : value.at(part);
    at = dot + 1;
  }
  return value.is_string() ? value.get<std::string>() : value.dump();
}

std::string Cluster::ScriptedJob(const std::string& name, int degree, const std::string& script,
                                 int max_restarts) const {
  std::ofstream(folder() + "/" + name + ".script.txt")
      << script << "end: a script is also the job's text, and must be long enough to be one\n";
  const std::string path = folder() + "/" + name + ".yaml";
  std::ofstream(path) << "name: " << name << "\n"
                      << "model: {family: llama, layers: 1, hidden: 16, heads: 2, ffn: 32}\n"
                      << "data: {source: [" << name << ".script.txt], sequence_length: 32}\n"
                      << "train: {steps: 20, learning_rate: 0.001}\n"
                      << "parallel: {degree: " << degree << "}\n"
                      << "max_restarts: " << max_restarts << "\n";
  return path;
}

}  // namespace metp
