#include "server/http/metrics.h"

#include <map>
#include <optional>
#include <vector>

#include "proto/support/disk_room.h"
#include "proto/support/metric_page.h"
#include "server/http/html.h"
#include "server/http/job_series.h"
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
    page.Gauge("metp_worker_ready", "0: suspect or lost.",
               {{"worker", worker.name()}, {"node", worker.node()}},
               worker.state() == v1::WorkerStatus::READY ? 1 : 0);
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

MetricPage::Labels With(MetricPage::Labels labels, const std::string& key, const std::string& value) {
  labels.emplace_back(key, value);
  return labels;
}

void AddPlanned(MetricPage& page, const MetricPage::Labels& job, const v1::Prediction& plan) {
  page.Gauge("metp_job_planned_step_seconds", "Time of a step as planned.", job, plan.step_seconds());
  page.Gauge("metp_job_planned_tokens_per_second", "As planned.", job, plan.tokens_per_second());
  page.Gauge("metp_job_planned_mfu_ratio", "As planned.", job, plan.mfu());
  page.Gauge("metp_job_planned_exposed_seconds", "Of a step, all passes, as planned.", job,
             plan.exposed_seconds());
  page.Gauge("metp_job_planned_memory_peak_bytes", "Planned peak of the rank that has most.", job,
             static_cast<double>(plan.peak_bytes()));
  page.Gauge("metp_job_planned_memory_usable_bytes", "Of one device, that it was planned for.", job,
             static_cast<double>(plan.usable_bytes()));
  for (const auto& [category, bytes] : plan.peak_bytes_by_category()) {
    page.Gauge("metp_job_planned_memory_at_peak_bytes", "Held at the planned peak; sums to it.",
               With(job, "category", category), static_cast<double>(bytes));
  }
  for (const v1::PassPrediction& pass : plan.passes()) {
    const MetricPage::Labels labels = With(job, "pass", pass.pass());
    page.Gauge("metp_job_planned_pass_compute_seconds", "Of a step, slowest rank, as planned.", labels,
               pass.compute_seconds());
    page.Gauge("metp_job_planned_pass_communication_seconds", "Of a step, slowest rank, as planned.", labels,
               pass.communication_seconds());
    page.Gauge("metp_job_planned_pass_exposed_seconds", "Of a step, slowest rank, as planned.", labels,
               pass.exposed_seconds());
  }
}

void AddState(MetricPage& page, const CoordinatorState& state) {
  page.Gauge("metp_start_timestamp_seconds", "When this coordinator started, Unix time.", {},
             Seconds(state.started));
  page.Gauge("metp_store_writable", "0 while the store takes no changes.", {}, state.store_writable ? 1 : 0);
  if (state.folder.empty()) return;
  const std::optional<DiskRoom> room = RoomOf(state.folder);
  if (!room.has_value()) return;
  page.Gauge("metp_state_free_bytes", "Free on the file system of --state.", {}, room->free_bytes);
  page.Gauge("metp_state_size_bytes", "Size of the file system of --state.", {}, room->size_bytes);
}

void AddJob(MetricPage& page, const v1::JobStatus& job) {
  const MetricPage::Labels labels = {{"job", job.id()}};
  if (job.has_prediction()) {
    AddPlanned(page, labels, job.prediction());
    page.Gauge("metp_job_mfu_ratio", "Model FLOPs over the peak of the profile, over the last steps.", labels,
               MeasuredMfu(job));
  }
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
    page.Gauge("metp_job_checkpoint_every_steps", "Steps from one to the next.", labels,
               job.job().checkpoint().every_steps());
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

std::string CoordinatorMetrics(const JobTable& jobs, const Registry& workers, const CoordinatorState& state) {
  MetricPage page;
  AddState(page, state);
  AddWorkers(page, workers, jobs);
  AddJobs(page, jobs.Count());
  for (const auto& [cause, count] : jobs.CountWaiting())
    page.Gauge("metp_queue_jobs", "Queued jobs by what they wait for.", {{"reason", WaitCauseName(cause)}},
               count);
  for (const v1::JobStatus& job : jobs.Active()) AddJob(page, job);
  for (const auto& [job, time] : jobs.LastSteps()) {
    page.Gauge("metp_job_progress_timestamp_seconds",
               "When its last step became whole, or, before the first, when it started. Unix time.",
               {{"job", job}}, Seconds(time));
  }
  return page.Text();
}

}  // namespace metp
