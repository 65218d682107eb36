// metpctl logs: what a job's ranks have printed.

#include <memory>
#include <optional>

#include "client/api.h"
#include "client/command.h"
#include "client/interrupt.h"

namespace metp {
namespace {

constexpr int kMostRank = 65535;

struct Options {
  std::string job;
  int rank = -1;
  bool follow = false;
};

int Run(const Globals& globals, const Options& options) {
  Api api(globals.coordinator, std::chrono::seconds(globals.patience_seconds));
  std::optional<int> rank;
  if (options.rank >= 0) rank = options.rank;
  OnInterrupt interrupt([&api] { api.Interrupt(); });
  const absl::Status status =
      api.WatchLogs(options.job, rank, options.follow, [&](const v1::LogChunk& chunk) {
        if (chunk.dropped() > 0) {
          std::fprintf(stderr, "[%lld lines dropped: only the last ones are kept]\n",
                       static_cast<long long>(chunk.dropped()));
        }
        for (const v1::LogLine& line : chunk.lines()) {
          if (rank.has_value()) {
            std::printf("%s\n", line.text().c_str());
          } else {
            std::printf("[%d] %s\n", line.rank(), line.text().c_str());
          }
        }
        std::fflush(stdout);
      });
  if (absl::IsCancelled(status)) return kExitInterrupted;
  return status.ok() ? kExitOk : Fail(status);
}

}  // namespace

void AddLogs(CLI::App& app, Globals& globals) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("logs", "Print the output of a job's ranks, each line with its rank");
  verb->add_option("job", options->job, kJobHelp)->required();
  verb->add_option("-r,--rank", options->rank, "this rank's only, without its number")
      ->check(CLI::Range(0, kMostRank));
  verb->add_flag("-f,--follow", options->follow, "go on until the job ends");
  verb->callback(
      [&globals, options] { globals.run = [&globals, options] { return Run(globals, *options); }; });
}

}  // namespace metp
