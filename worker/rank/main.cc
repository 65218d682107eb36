// metp-rank: the training itself, one process a rank. `run` trains a whole job without any service, `probe`
// measures the machine or its GPU, `serve` is what a worker starts.

#include <cstring>
#include <iostream>

#include "worker/rank/probe.h"
#include "worker/rank/run.h"
#include "worker/rank/serve.h"

int main(int argc, char** argv) {
  const char* verb = argc > 1 ? argv[1] : "";
  if (std::strcmp(verb, "run") == 0) return metp::RunCommand(argc - 1, argv + 1);
  if (std::strcmp(verb, "probe") == 0) return metp::ProbeCommand(argc - 1, argv + 1);
  if (std::strcmp(verb, "serve") == 0) return metp::ServeCommand(argc - 1, argv + 1);
  if (std::strcmp(verb, "--version") == 0) {
    std::cout << METP_VERSION << "\n";
    return 0;
  }
  const bool help = std::strcmp(verb, "--help") == 0 || std::strcmp(verb, "-h") == 0;
  (help ? std::cout : std::cerr)
      << "usage: metp-rank run -f JOB.yaml [--ranks P] [--comm local|gloo|nccl] [--threads T]\n"
         "                     [--backend cpu|cuda] [--precision bf16|fp32]\n"
         "                     [--set key=value ...] [-o text|json]\n"
         "       metp-rank run -f JOB.yaml --backend sim --profile NAME|FILE\n"
         "       metp-rank probe [--device cpu|gpu] [--ranks P] [--threads T]\n"
         "       metp-rank run --help, metp-rank probe --help, metp-rank --version\n";
  return help ? 0 : 2;
}
