#pragma once

// The coordinator under load: a process of its own on loopback ports that stay the same when it is started again, its state in
// a temporary folder, and what /proc says of it.

#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "nlohmann/json.hpp"
#include "tests/support/subprocess.h"
#include "tests/support/temp_folder.h"

namespace metp::bench {

class CoordinatorProcess {
 public:
  explicit CoordinatorProcess(std::string program) : program_(std::move(program)) {}

  /// Returns when it serves. Unavailable: it does not come up.
  absl::Status Start() {
    process_ = std::make_unique<Subprocess>(std::vector<std::string>{
        program_, "--listen", listen_, "--http", http_, "--state", state(), "--ready-file", ready()});
    if (process_->ReadUntil("listening on").empty())
      return absl::UnavailableError(program_ + " does not start: " + process_->Wait().error);
    std::ifstream file(ready());
    const nlohmann::json said = nlohmann::json::parse(file, nullptr, false);
    if (said.is_discarded()) return absl::UnavailableError(ready() + " cannot be read");
    listen_ = said["listen"];
    http_ = said["http"];
    return absl::OkStatus();
  }
  void Kill() {
    process_->Signal(SIGKILL);
    process_->Wait();
  }

  const std::string& address() const { return listen_; }
  /// User and system time so far.
  double CpuSeconds() const {
    std::ifstream file(Proc("stat"));
    std::string text;
    std::getline(file, text);
    std::istringstream fields(text.substr(text.rfind(')') + 2));  // from the third field, the state, on
    std::string skipped;
    for (int i = 3; i < 14; ++i) fields >> skipped;
    double user = 0, system = 0;
    fields >> user >> system;
    return (user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
  }
  /// "VmRSS", "VmHWM" (its peak).
  double Megabytes(const std::string& key) const {
    std::ifstream file(Proc("status"));
    for (std::string line; std::getline(file, line);) {
      if (line.rfind(key + ":", 0) == 0) return std::stod(line.substr(key.size() + 1)) * 1024 / 1e6;
    }
    return 0;
  }
  double StateMegabytes() const {
    double bytes = 0;
    for (const auto& entry : std::filesystem::directory_iterator(state()))
      bytes += static_cast<double>(entry.file_size());
    return bytes / 1e6;
  }

 private:
  std::string state() const { return folder_.path() + "/state"; }
  std::string ready() const { return folder_.path() + "/ready"; }
  std::string Proc(const char* name) const { return "/proc/" + std::to_string(process_->pid()) + "/" + name; }

  const testing::TempFolder folder_;
  const std::string program_;
  std::string listen_ = "127.0.0.1:0", http_ = "127.0.0.1:0";
  std::unique_ptr<Subprocess> process_;  // goes before its folder
};

}  // namespace metp::bench
