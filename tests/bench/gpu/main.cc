// metp_gpu_bench: how fast the CUDA backend is on the device that the runtime numbers 0, against ceilings measured in the
// same run. Exits with 77 where there is no device. What the figures mean: tests/gpu/README.md.

#include <cuda_runtime.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <string>

#include "tests/bench/gpu/device.h"
#include "tests/bench/gpu/parts.h"

namespace metp::gpu_bench {
namespace {

struct Options {
  bool quick = false;
  double link_gbps = 200;
  int64_t tile_rows = 0;
  std::string output;
};

std::string Run(const Options& options) {
  Shapes shapes = options.quick ? QuickShapes() : Shapes{};
  shapes.link_bytes_per_second = options.link_gbps * 1e9;
  if (options.tile_rows > 0) shapes.tile_rows = options.tile_rows;
  const std::vector<std::string> head = DescribeDevice();
  for (const std::string& line : head) std::printf("%s\n", line.c_str());
  Report report;
  Rates rates;
  {
    Bench bench(shapes, report);  // its memory is given back before the step
    MeasureCeilings(bench);
    MeasureProducts(bench);
    MeasureAttention(bench);
    MeasureMemoryBound(bench);
    rates = bench.rates();
  }
  MeasureStep(shapes, rates, report);
  return report.Markdown(head);
}

}  // namespace
}  // namespace metp::gpu_bench

int main(int argc, char** argv) {
  metp::gpu_bench::Options options;
  CLI::App app("Rates of the CUDA backend on this machine's first device, beside what the device can do.");
  app.add_flag("--quick", options.quick, "tiny shapes: shows that the program runs, not how fast");
  app.add_option("--link-gbps", options.link_gbps, "GB/s of the training step's link, each way; 0: no limit")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--tile-rows", options.tile_rows, "rows of an MLP or loss tile; default: 4096")
      ->check(CLI::PositiveNumber);
  app.add_option("-o,--output", options.output,
                 "write the results there as Markdown, for tests/gpu/RESULTS.md");
  CLI11_PARSE(app, argc, argv);

  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) {
    std::printf("skipped: no CUDA device (%s)\n", cudaGetErrorString(error));
    return 77;
  }
  try {
    const std::string markdown = metp::gpu_bench::Run(options);
    if (!options.output.empty() && !(std::ofstream(options.output) << markdown)) {
      std::fprintf(stderr, "metp_gpu_bench: could not write %s\n", options.output.c_str());
      return 1;
    }
    const std::vector<std::string> faults = metp::gpu_bench::TakeEmulation().faults;
    for (const std::string& fault : faults) std::fprintf(stderr, "metp_gpu_bench: %s\n", fault.c_str());
    if (!faults.empty()) return 1;
  } catch (const metp::StepError& failure) {
    std::fprintf(stderr, "metp_gpu_bench: %s\n", failure.what());
    return 1;
  }
  return 0;
}
