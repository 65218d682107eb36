#include <unistd.h>

#include <CLI/CLI.hpp>
#include <iostream>

#include "worker/backend/sim/profile.h"
#include "worker/backend/step_error.h"
#include "worker/rank/probe.h"
#include "worker/rank/run_rank.h"

namespace metp {

int ProbeCommand(int argc, char** argv) {
  int ranks = 1, threads = 0, fd = STDOUT_FILENO;
  std::string device = "cpu", comm = "local";
  CLI::App app{
      "Measures this machine's CPU, or a GPU of it, and prints a device profile, which --profile takes",
      "metp-rank probe"};
  app.add_option("--device", device, "what is measured: cpu, or gpu, the first one, in bf16")
      ->capture_default_str()
      ->check(CLI::IsMember({"cpu", "gpu"}));
  app.add_option("--ranks", ranks,
                 "ranks on this machine: on the CPU, all are measured at once; on GPUs, one is")
      ->capture_default_str()
      ->check(CLI::Range(1, 256));
  app.add_option("--threads", threads, "compute threads of each; default: cores / ranks")
      ->check(CLI::Range(1, 1024));
  const CLI::Option* const comm_option =
      app.add_option("--comm", comm,
                     "what messages of ranks on the CPU go through: local, one process's memory, or gloo")
          ->capture_default_str()
          ->check(CLI::IsMember({"local", "gloo"}));
  app.add_option("--fd", fd, "descriptor that the profile is written to; default: standard output")
      ->check(CLI::Range(0, 1024));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (device == "gpu" && comm_option->count() > 0) {
    std::cerr << "metp-rank: --comm is of ranks on the CPU: found --device gpu\n";
    return 2;
  }
  if (threads == 0) threads = DefaultThreads(ranks);
  std::string text;
  try {
    text = ProfileToYaml(
        device == "gpu"
            ? ProbeThisGpu(ranks, threads)
            : ProbeThisMachine(ranks, threads, comm == "gloo" ? ProbedLink::kLoopback : ProbedLink::kMemory));
  } catch (const StepError& error) {
    std::cerr << "metp-rank: " << error.status().message() << "\n";
    return 1;
  }
  if (write(fd, text.data(), text.size()) !=
      static_cast<ssize_t>(text.size())) {  // a page at most: whole or not
    std::cerr << "metp-rank: the profile could not be written\n";
    return 1;
  }
  return 0;
}

}  // namespace metp
