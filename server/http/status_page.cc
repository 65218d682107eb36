#include "server/http/status_page.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/support/version.h"
#include "server/worker_list.h"
#include "worker/model/plan.h"

namespace metp {
namespace {

constexpr size_t kJobsShown = 50;

}  // namespace

std::string StatusPage(const JobTable& jobs, const Registry& workers) {
  std::string page = absl::StrCat("metp coordinator ", kVersion, "\n\n");
  absl::StrAppendFormat(&page, "%-20s %-8s %-22s %s\n", "WORKER", "STATE", "ADDRESS", "HOLDS");
  for (const v1::WorkerStatus& worker : WorkersWithRanks(workers, jobs)) {
    absl::StrAppendFormat(
        &page, "%-20s %-8s %-22s %s\n", worker.name(), v1::WorkerStatus::State_Name(worker.state()),
        worker.address(),
        worker.job().empty() ? std::string("-") : absl::StrCat(worker.job(), " rank ", worker.rank()));
  }
  std::vector<v1::JobRecord> records = jobs.Snapshot();
  std::reverse(records.begin(), records.end());
  absl::StrAppendFormat(&page, "\n%-30s %-10s %5s %15s %10s  %s\n", "JOB (latest first)", "STATE", "RANKS",
                        "STEP", "LOSS", "REASON");
  for (size_t i = 0; i < std::min(records.size(), kJobsShown); ++i) {
    const v1::JobStatus& job = records[i].status();
    absl::StrAppendFormat(
        &page, "%-30s %-10s %5d %15s %10s  %s\n", job.id(), v1::JobStatus::State_Name(job.state()),
        RanksOf(job.plan()), absl::StrCat(job.step(), " of ", job.job().train().steps()),
        job.has_loss() ? absl::StrFormat("%.4f", job.loss()) : std::string("-"), job.reason());
  }
  absl::StrAppend(&page, "\n/metrics  Prometheus metrics\n/healthz  200 while this process serves\n");
  return page;
}

}  // namespace metp
