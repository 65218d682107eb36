// metpctl version: its own, and the coordinator's if one answers.

#include "proto/support/version.h"

#include "client/api.h"
#include "client/command.h"

namespace metp {
namespace {

int Run(const Globals& globals) {
  std::printf("metpctl %s\n", kVersion);
  Api api(globals.coordinator);
  const absl::StatusOr<v1::GetServerResponse> server = api.GetServer();
  if (server.ok()) {
    std::printf("coordinator %s at %s, %s\n", server->version().c_str(), globals.coordinator.c_str(),
                server->http_url().c_str());
  } else {
    std::fprintf(stderr, "%s\n", std::string(server.status().message()).c_str());
  }
  return kExitOk;
}

}  // namespace

void AddVersion(CLI::App& app, Globals& globals) {
  CLI::App* verb = app.add_subcommand("version", "Print versions");
  verb->callback([&globals] { globals.run = [&globals] { return Run(globals); }; });
}

}  // namespace metp
