// metpctl: the command line. Data on stdout, messages on stderr, exit codes in exit_codes.h.

#include <csignal>
#include <cstdlib>

#include "client/command.h"
#include "proto/support/names.h"
#include "proto/support/version.h"

int main(int argc, char** argv) {
  setenv("GRPC_VERBOSITY", "NONE", 0);  // errors are told by whoever meets them
  std::signal(SIGPIPE, SIG_DFL);        // `metpctl logs | head` ends quietly
  metp::Globals globals;
  CLI::App app{"Submits training jobs to a metp coordinator and watches over them"};
  app.set_version_flag("--version", metp::kVersion);
  app.add_option("--coordinator", globals.coordinator, "HOST:PORT of the coordinator")
      ->envname("METP_COORDINATOR")
      ->check(metp::HostPortError)
      ->capture_default_str();
  app.add_option("--patience", globals.patience_seconds,
                 "seconds that a watch which has begun waits for a coordinator that has gone")
      ->check(CLI::Range(0, 86400))
      ->capture_default_str();
  app.require_subcommand(1);
  app.fallthrough();  // --coordinator may stand after the verb too
  app.footer(std::string("\nA JOB is given by its id, by its name (the latest job of that name) or by an "
                         "unambiguous beginning of "
                         "its id.\n") +
             metp::kExitCodesHelp);
  metp::AddSubmit(app, globals);
  metp::AddPlan(app, globals);
  metp::AddGet(app, globals);
  metp::AddDescribe(app, globals);
  metp::AddEvents(app, globals);
  metp::AddWatch(app, globals);
  metp::AddLogs(app, globals);
  metp::AddCancel(app, globals);
  metp::AddExport(app, globals);
  metp::AddWorkers(app, globals);
  metp::AddDrain(app, globals);
  metp::AddResume(app, globals);
  metp::AddTrace(app, globals);
  metp::AddVersion(app, globals);
  try {
    app.parse(argc, argv);
  } catch (const CLI::RequiredError& error) {
    // CLI11 misses a verb before it says that it does not know the one that was given.
    if (app.get_subcommands().empty() && argc > 1 && argv[1][0] != '-') {
      std::fprintf(stderr, "metpctl: unknown verb '%s'; metpctl --help names all\n", argv[1]);
      return metp::kExitUsage;
    }
    app.exit(error);
    return metp::kExitUsage;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? metp::kExitOk : metp::kExitUsage;
  }
  const int code = globals.run();
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    std::fprintf(stderr, "metpctl: the output could not be written\n");
    return metp::kExitOutput;
  }
  return code;
}
