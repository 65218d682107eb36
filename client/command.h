#pragma once

// What every verb gets and gives. A verb is one file: it adds its subcommand and options and says what to
// run.

#include <cstdio>
#include <functional>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "client/exit_codes.h"

namespace metp {

struct Globals {
  int patience_seconds = 60;
  std::string coordinator = "127.0.0.1:7070";
  std::function<int()> run;  // of the verb that was chosen; returns the exit code
};

void AddSubmit(CLI::App& app, Globals& globals);
void AddPlan(CLI::App& app, Globals& globals);
void AddGet(CLI::App& app, Globals& globals);
void AddDescribe(CLI::App& app, Globals& globals);
void AddEvents(CLI::App& app, Globals& globals);
void AddWatch(CLI::App& app, Globals& globals);
void AddLogs(CLI::App& app, Globals& globals);
void AddCancel(CLI::App& app, Globals& globals);
void AddExport(CLI::App& app, Globals& globals);
void AddWorkers(CLI::App& app, Globals& globals);
void AddDrain(CLI::App& app, Globals& globals);
void AddResume(CLI::App& app, Globals& globals);
void AddTrace(CLI::App& app, Globals& globals);
void AddVersion(CLI::App& app, Globals& globals);

inline constexpr char kJobHelp[] = "id, name (its latest job) or unambiguous beginning of an id";

/// Prints the error for people; returns its exit code.
inline int Fail(const absl::Status& status) {
  std::fprintf(stderr, "metpctl: %s\n", std::string(status.message()).c_str());
  return ExitCodeOf(status);
}

/// Adds -o text|json.
inline void AddOutput(CLI::App* verb, std::string& output) {
  verb->add_option("-o,--output", output, "text for people, json for programs")
      ->capture_default_str()
      ->check(CLI::IsMember({"text", "json"}));
}

}  // namespace metp
