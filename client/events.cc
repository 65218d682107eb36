// metpctl events: what happened to a job, oldest first.

#include <memory>
#include <vector>

#include "client/api.h"
#include "client/command.h"
#include "client/format.h"
#include "client/json.h"
#include "google/protobuf/util/time_util.h"

namespace metp {
namespace {

struct Options {
  std::string job, output = "text";
};

int Run(const Globals& globals, const Options& options) {
  Api api(globals.coordinator);
  const absl::StatusOr<v1::ListEventsResponse> events = api.ListEvents(options.job);
  if (!events.ok()) return Fail(events.status());
  if (options.output == "json") {
    std::printf("%s\n", ToJson(*events).c_str());
    return kExitOk;
  }
  std::vector<std::vector<std::string>> rows = {{"TIME", "ATTEMPT", "WHAT"}};
  for (const v1::JobEvent& event : events->events()) {
    const std::string attempt = event.attempt().substr(event.attempt().rfind('/') + 1);
    rows.push_back({google::protobuf::util::TimeUtil::ToString(event.time()), attempt.empty() ? "-" : attempt,
                    event.text()});
  }
  std::fputs(Table(rows, {1}).c_str(), stdout);
  return kExitOk;
}

}  // namespace

void AddEvents(CLI::App& app, Globals& globals) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("events", "Show what happened to a job, oldest first");
  verb->add_option("job", options->job, kJobHelp)->required();
  AddOutput(verb, options->output);
  verb->callback(
      [&globals, options] { globals.run = [&globals, options] { return Run(globals, *options); }; });
}

}  // namespace metp
