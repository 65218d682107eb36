#include "server/http/metrics.h"

#include <map>
#include <vector>

#include "proto/support/metric_page.h"
#include "server/worker_list.h"

namespace metp {
namespace {

std::string Lower(std::string name) {
  for (char& c : name) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  return name;
}

void AddWorkers(MetricPage& page, const Registry& registry, const JobTable& jobs) {
  std::map<v1::WorkerStatus::State, int> count = {
      {v1::WorkerStatus::READY, 0}, {v1::WorkerStatus::SUSPECT, 0}, {v1::WorkerStatus::LOST, 0}};
  const std::vector<v1::WorkerStatus> workers = WorkersWithRanks(registry, jobs);
  int busy = 0, drained = 0;
  for (const v1::WorkerStatus& worker : workers) {
    ++count[worker.state()];
    busy += worker.job().empty() ? 0 : 1;
    drained += worker.drained() ? 1 : 0;
  }
  for (const auto& [state, n] : count) {
    page.Gauge("metp_workers", "Workers by what the coordinator holds them for.",
               {{"state", Lower(v1::WorkerStatus::State_Name(state))}}, n);
  }
  page.Gauge("metp_workers_busy", "Workers that hold a rank.", {}, busy);
  page.Gauge("metp_workers_drained", "Workers that take no new ranks until they are undrained.", {}, drained);
}

void AddJobs(MetricPage& page, const std::map<v1::JobStatus::State, int>& count) {
  for (const auto& [state, n] : count) {
    page.Gauge("metp_jobs", "Jobs that the coordinator keeps, by state.",
               {{"state", Lower(v1::JobStatus::State_Name(state))}}, n);
  }
  page.Gauge("metp_queue_depth", "Jobs that wait for workers.", {}, count.at(v1::JobStatus::QUEUED));
}

void AddJob(MetricPage& page, const v1::JobStatus& job) {
  const MetricPage::Labels labels = {{"job", job.id()}};
  page.Gauge("metp_job_step", "Last step that every rank has reported.", labels, job.step());
  page.Gauge("metp_job_steps", "Steps that the job is to take.", labels, job.job().train().steps());
  if (job.has_loss()) page.Gauge("metp_job_loss", "Loss of the last step.", labels, job.loss());
  page.Gauge("metp_job_tokens_per_second", "Tokens of the global batch per second, over the last steps.",
             labels, job.tokens_per_second());
  page.Counter("metp_job_restarts_total", "Attempts after the first.", labels, job.restarts());
  page.Gauge("metp_job_restarts_without_checkpoint", "Restarts since there was last a newer checkpoint.",
             labels, job.fruitless_restarts());
  if (job.job().has_checkpoint()) {
    page.Gauge("metp_job_checkpoint_step", "Step of the newest complete checkpoint; 0: none.", labels,
               job.checkpoint_step());
    page.Gauge("metp_job_checkpoint_failing", "1 while the last checkpoint could not be written.", labels,
               job.checkpoint_trouble().empty() ? 0 : 1);
  }
  if (job.has_checkpoint_time()) {
    page.Gauge("metp_job_checkpoint_timestamp_seconds", "When it became complete, Unix time.", labels,
               static_cast<double>(job.checkpoint_time().seconds()));
  }
  for (const v1::RankStatus& rank : job.ranks()) {
    if (rank.straggler_ratio() == 0) continue;
    page.Gauge("metp_job_straggler_ratio",
               "Computing time of the rank over that of the median rank, last 20 steps.",
               {{"job", job.id()}, {"rank", std::to_string(rank.rank())}}, rank.straggler_ratio());
  }
}

}  // namespace

std::string CoordinatorMetrics(const JobTable& jobs, const Registry& workers, bool store_writable) {
  MetricPage page;
  AddWorkers(page, workers, jobs);
  AddJobs(page, jobs.Count());
  for (const v1::JobStatus& job : jobs.Active()) AddJob(page, job);
  page.Gauge("metp_store_writable", "0 while the store takes no changes.", {}, store_writable ? 1 : 0);
  return page.Text();
}

}  // namespace metp
