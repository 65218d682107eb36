#include "client/watching.h"

#include <algorithm>
#include <cstdio>

#include "client/command.h"
#include "client/interrupt.h"
#include "client/json.h"
#include "client/progress.h"
#include "client/summary.h"
#include "client/terminal.h"

namespace metp {
namespace {

bool Ended(const v1::JobStatus& status) { return status.has_finished(); }

void PrintSummary(Api& api, const Progress& progress) {
  const absl::StatusOr<v1::GetServerResponse> server = api.GetServer();
  CurveStyle style;
  style.width = std::min(TerminalWidth(stdout), 100);
  style.utf8 = SpeaksUtf8();
  std::fputs(
      Summary(progress.status(), progress.steps(), server.ok() ? server->http_url() : "", style).c_str(),
      stdout);
}

}  // namespace

int Follow(Api& api, const std::string& job, bool json) {
  Progress progress(json                                       ? WatchStyle::kJson
                    : IsTerminal(stderr) && IsTerminal(stdout) ? WatchStyle::kBar
                                                               : WatchStyle::kLines);
  absl::Status status;
  {
    OnInterrupt interrupt([&api] { api.Interrupt(); });
    status = api.WatchJob(job, [&](const v1::WatchJobUpdate& update) { progress.Show(update); });
  }
  progress.Clear();
  if (absl::IsCancelled(status)) {
    std::fprintf(stderr, "metpctl: stopped watching; job %s goes on. To end it: metpctl cancel %s\n",
                 job.c_str(), job.c_str());
    return kExitInterrupted;
  }
  if (!status.ok()) {
    if (!progress.status().id().empty()) {
      std::fprintf(stderr, "metpctl: lost sight of job %s, which may go on: metpctl watch %s\n", job.c_str(),
                   job.c_str());
    }
    return Fail(status);
  }
  if (!Ended(progress.status())) {
    return Fail(absl::UnavailableError("the coordinator ended the watch before the job's end"));
  }
  if (json) {
    std::printf("{\"status\":%s}\n", ToJson(progress.status(), /*pretty=*/false).c_str());
  } else {
    PrintSummary(api, progress);
  }
  return ExitCodeOf(progress.status().state());
}

}  // namespace metp
