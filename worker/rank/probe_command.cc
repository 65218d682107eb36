#include <CLI/CLI.hpp>
#include <iostream>

#include "worker/backend/sim/profile.h"
#include "worker/backend/step_error.h"
#include "worker/rank/probe.h"
#include "worker/rank/run_rank.h"

namespace metp {

int ProbeCommand(int argc, char** argv) {
  int ranks = 1, threads = 0;
  CLI::App app{"Measures this machine and prints a device profile, which --profile takes", "metp-rank probe"};
  app.add_option("--ranks", ranks, "ranks at work at once")->capture_default_str()->check(CLI::Range(1, 256));
  app.add_option("--threads", threads, "compute threads of each; default: cores / ranks")
      ->check(CLI::Range(1, 1024));
  std::string comm = "local";
  app.add_option("--comm", comm, "what their messages go through: local, one process's memory, or gloo")
      ->capture_default_str()
      ->check(CLI::IsMember({"local", "gloo"}));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  try {
    std::cout << ProfileToYaml(ProbeThisMachine(ranks, threads == 0 ? DefaultThreads(ranks) : threads,
                                                comm == "gloo" ? ProbedLink::kLoopback : ProbedLink::kMemory))
              << std::flush;
  } catch (const StepError& error) {
    std::cerr << "metp-rank: " << error.what() << "\n";
    return 1;
  }
  if (!std::cout) {
    std::cerr << "metp-rank: the output could not be written\n";
    return 1;
  }
  return 0;
}

}  // namespace metp
