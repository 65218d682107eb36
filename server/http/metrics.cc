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
  int busy = 0;
  for (const v1::WorkerStatus& worker : workers) {
    ++count[worker.state()];
    busy += worker.job().empty() ? 0 : 1;
  }
  for (const auto& [state, n] : count) {
    page.Gauge("metp_workers", "Workers by what the coordinator holds them for.",
               {{"state", Lower(v1::WorkerStatus::State_Name(state))}}, n);
  }
  page.Gauge("metp_workers_busy", "Workers that hold a rank.", {}, busy);
}

void AddJobs(MetricPage& page, const std::vector<v1::JobRecord>& records) {
  std::map<v1::JobStatus::State, int> count;
  for (int state = v1::JobStatus::QUEUED; state <= v1::JobStatus::CANCELLED; ++state) {
    count[static_cast<v1::JobStatus::State>(state)] = 0;
  }
  for (const v1::JobRecord& record : records) ++count[record.status().state()];
  for (const auto& [state, n] : count) {
    page.Gauge("metp_jobs", "Jobs that the coordinator keeps, by state.",
               {{"state", Lower(v1::JobStatus::State_Name(state))}}, n);
  }
  page.Gauge("metp_queue_depth", "Jobs that wait for workers.", {}, count[v1::JobStatus::QUEUED]);
}

void AddJob(MetricPage& page, const v1::JobStatus& job) {
  const MetricPage::Labels labels = {{"job", job.id()}};
  page.Gauge("metp_job_step", "Last step that every rank has reported.", labels, job.step());
  page.Gauge("metp_job_steps", "Steps that the job is to take.", labels, job.job().train().steps());
  if (job.has_loss()) page.Gauge("metp_job_loss", "Loss of the last step.", labels, job.loss());
  page.Gauge("metp_job_tokens_per_second", "Tokens of the global batch per second, over the last steps.",
             labels, job.tokens_per_second());
}

}  // namespace

std::string CoordinatorMetrics(const JobTable& jobs, const Registry& workers) {
  MetricPage page;
  const std::vector<v1::JobRecord> records = jobs.Snapshot();
  AddWorkers(page, workers, jobs);
  AddJobs(page, records);
  for (const v1::JobRecord& record : records) {
    const v1::JobStatus::State state = record.status().state();
    if (state == v1::JobStatus::STARTING || state == v1::JobStatus::RUNNING) AddJob(page, record.status());
  }
  return page.Text();
}

}  // namespace metp
