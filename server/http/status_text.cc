#include "server/http/status_text.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/support/figures.h"
#include "proto/support/status_macros.h"
#include "proto/support/version.h"
#include "server/worker_list.h"
#include "worker/model/plan.h"

namespace metp {
namespace {

constexpr size_t kJobsShown = 50;  // of each kind
constexpr size_t kWorkersShown = 100;

std::string Step(const v1::JobStatus& job) {
  return absl::StrCat(job.step(), " of ", job.job().train().steps());
}
std::string Loss(const v1::JobStatus& job) { return job.has_loss() ? Short(job.loss()) : "-"; }

void AddMore(std::string& page, int all, size_t shown) {
  if (static_cast<size_t>(all) > shown)
    absl::StrAppend(&page, "and ", all - static_cast<int>(shown), " more\n");
}

}  // namespace

std::string StatusText(const JobTable& jobs, const Registry& workers) {
  std::string page = absl::StrCat("metp coordinator ", kVersion, "\n\n");
  absl::StrAppendFormat(&page, "%-20s %-8s %-22s %s\n", "WORKER", "STATE", "ADDRESS", "HOLDS");
  const std::vector<v1::WorkerStatus> all = WorkersWithRanks(workers, jobs);
  for (size_t i = 0; i < std::min(all.size(), kWorkersShown); ++i) {
    const v1::WorkerStatus& worker = all[i];
    absl::StrAppendFormat(
        &page, "%-20s %-8s %-22s %s\n", worker.name(), v1::WorkerStatus::State_Name(worker.state()),
        worker.address(),
        worker.job().empty() ? std::string("-") : absl::StrCat(worker.job(), " rank ", worker.rank()));
  }
  AddMore(page, static_cast<int>(all.size()), kWorkersShown);
  const JobTable::Overview overview = jobs.ReadOverview(kJobsShown, /*with_trends=*/false);
  absl::StrAppendFormat(&page, "\n%-30s %-10s %5s %15s %10s  %s\n", "JOB", "STATE", "RANKS", "STEP", "LOSS",
                        "REASON");
  for (const auto* list : {&overview.active, &overview.queued, &overview.finished}) {
    for (const v1::JobStatus& job : *list) {
      absl::StrAppendFormat(&page, "%-30s %-10s %5d %15s %10s  %s\n", job.id(),
                            v1::JobStatus::State_Name(job.state()), RanksOf(job.plan()), Step(job), Loss(job),
                            job.reason());
    }
  }
  int known = 0;
  for (const auto& [state, count] : overview.count) known += count;
  AddMore(page, known, overview.active.size() + overview.queued.size() + overview.finished.size());
  absl::StrAppend(&page,
                  "\n/jobs/ID     one job\n/metrics     Prometheus metrics\n/sd/workers  Prometheus targets\n"
                  "/healthz     200 while this process serves\n");
  return page;
}

absl::StatusOr<std::string> JobText(const JobTable& jobs, const std::string& id) {
  METP_ASSIGN_OR_RETURN(const v1::JobStatus job, jobs.Get(id));
  std::string page =
      absl::StrCat(job.id(), " ", v1::JobStatus::State_Name(job.state()), job.reason().empty() ? "" : ": ",
                   job.reason(), "\nstep ", Step(job), ", loss ", Loss(job), ", ",
                   Grouped(static_cast<int64_t>(job.tokens_per_second())), " tokens/s\n\n");
  absl::StrAppendFormat(&page, "%4s %-20s %-8s %8s %12s  %s\n", "RANK", "WORKER", "STATE", "STEP", "PEAK",
                        "RUNS / ENDED");
  for (const v1::RankStatus& rank : job.ranks()) {
    absl::StrAppendFormat(&page, "%4d %-20s %-8s %8d %12s  %s\n", rank.rank(), rank.worker(),
                          v1::RankStatus::State_Name(rank.state()), rank.step(),
                          Bytes(static_cast<double>(rank.peak_bytes())),
                          rank.end().empty() ? rank.description() : rank.end());
  }
  return page;
}

}  // namespace metp
