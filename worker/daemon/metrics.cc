#include "worker/daemon/metrics.h"

#include "proto/support/metric_page.h"

namespace metp {
namespace {

using Labels = MetricPage::Labels;

Labels With(Labels labels, const std::string& key, const std::string& value) {
  labels.emplace_back(key, value);
  return labels;
}

void AddPass(MetricPage& page, const Labels& rank, const std::string& pass, const v1::PassTimes& times) {
  const Labels labels = With(rank, "pass", pass);
  page.Counter("metp_pass_compute_seconds_total", "Computing in this pass of the ring.", labels,
               times.compute_seconds());
  page.Counter("metp_pass_communication_seconds_total", "Moving data, from both sides ready to done.", labels,
               times.communication_seconds());
  page.Counter("metp_pass_exposed_seconds_total", "Computing stood waiting for data; skew not counted.",
               labels, times.exposed_seconds());
  page.Counter("metp_pass_skew_seconds_total", "Waiting for a neighbour that was not ready.", labels,
               times.skew_seconds());
  page.Counter("metp_pass_hops_total", "Hops of this pass.", labels, static_cast<double>(times.hops()));
  page.Counter("metp_pass_exposed_hops_total", "Hops of which some was exposed.", labels,
               static_cast<double>(times.exposed_hops()));
}

void AddHost(MetricPage& page, const Labels& rank, int64_t peak_bytes, const v1::HostTimes& times) {
  page.Gauge("metp_host_memory_peak_bytes", "Most offloaded to host memory at once since the rank started.",
             rank, static_cast<double>(peak_bytes));
  page.Counter("metp_host_copy_seconds_total", "Copies to and from host memory, both directions added.", rank,
               times.copy_seconds());
  page.Counter("metp_host_update_seconds_total", "Updates of the optimizer state in host memory.", rank,
               times.update_seconds());
  page.Counter("metp_host_exposed_seconds_total", "Computing stood waiting for either.", rank,
               times.exposed_seconds());
}

/// The file system of checkpoint.directory, as this worker sees it.
void AddDisk(MetricPage& page, const Labels& rank, const DiskRoom& room) {
  page.Gauge("metp_checkpoint_disk_free_bytes", "Free on the file system of checkpoint.directory.", rank,
             room.free_bytes);
  page.Gauge("metp_checkpoint_disk_size_bytes", "Size of the file system of checkpoint.directory.", rank,
             room.size_bytes);
}

void AddGpu(MetricPage& page, const Gpu& gpu) {
  const GpuIdentity& identity = gpu.identity();
  page.Gauge(
      "metp_gpu_info", "1: the device that the ranks run on.",
      {{"gpu", identity.uuid}, {"name", identity.name}, {"driver", identity.driver}, {"bus", identity.bus}},
      1);
  const absl::StatusOr<GpuMemory> memory = gpu.Memory();
  page.Gauge("metp_gpu_answers", "0 when the device is lost.", {{"gpu", identity.uuid}}, memory.ok() ? 1 : 0);
  if (!memory.ok()) return;
  page.Gauge("metp_gpu_memory_total_bytes", "Memory that programs can have.", {{"gpu", identity.uuid}},
             static_cast<double>(memory->total_bytes));
  page.Gauge("metp_gpu_memory_used_bytes", "Of it, in use by all programs.", {{"gpu", identity.uuid}},
             static_cast<double>(memory->used_bytes));
  if (const absl::StatusOr<int64_t> errors = gpu.UncorrectedErrors(); errors.ok()) {
    page.Counter("metp_gpu_memory_errors_total", "Could not be corrected, since the driver was loaded.",
                 {{"gpu", identity.uuid}}, static_cast<double>(*errors));
  }
}

}  // namespace

void WorkerMetrics::DropEnded() {
  const Clock::Time now = clock_.Now();
  std::erase_if(ranks_, [&](const auto& entry) {
    return entry.second.ended.has_value() && now - *entry.second.ended > config_.metrics_kept;
  });
}

void WorkerMetrics::RankStarted(const std::string& job, const std::string& attempt, int rank,
                                const std::string& checkpoints) {
  MutexLock lock(mutex_);
  std::erase_if(ranks_, [](const auto& entry) { return entry.second.ended.has_value(); });
  Rank& started = ranks_[{attempt, rank}];
  started.job = job;
  started.disk = checkpoints.empty() ? nullptr : disks_.Watch(checkpoints);
}

void WorkerMetrics::Observe(const std::string& attempt, const v1::StepReport& report) {
  MutexLock lock(mutex_);
  const auto found = ranks_.find({attempt, report.rank()});
  if (found == ranks_.end()) return;
  Rank& rank = found->second;
  rank.last = report;
  rank.tokens += static_cast<double>(report.tokens());
  rank.steps += 1;
  rank.step_seconds += report.step_seconds();
  rank.checkpoint_seconds += report.checkpoint_seconds();
  rank.host.set_copy_seconds(rank.host.copy_seconds() + report.host().copy_seconds());
  rank.host.set_update_seconds(rank.host.update_seconds() + report.host().update_seconds());
  rank.host.set_exposed_seconds(rank.host.exposed_seconds() + report.host().exposed_seconds());
  for (const auto& [name, times] : report.passes()) {
    v1::PassTimes& total = rank.passes[name];
    total.set_compute_seconds(total.compute_seconds() + times.compute_seconds());
    total.set_communication_seconds(total.communication_seconds() + times.communication_seconds());
    total.set_exposed_seconds(total.exposed_seconds() + times.exposed_seconds());
    total.set_skew_seconds(total.skew_seconds() + times.skew_seconds());
    total.set_hops(total.hops() + times.hops());
    total.set_exposed_hops(total.exposed_hops() + times.exposed_hops());
  }
}

void WorkerMetrics::RankEnded(const std::string& attempt, int rank) {
  MutexLock lock(mutex_);
  const auto found = ranks_.find({attempt, rank});
  if (found != ranks_.end()) found->second.ended = clock_.Now();
}

void WorkerMetrics::NoteXid(int xid) {
  MutexLock lock(mutex_);
  ++xids_[xid];
}

void WorkerMetrics::SetConnected(bool connected) {
  MutexLock lock(mutex_);
  connected_ = connected;
}

std::string WorkerMetrics::Text() {
  MetricPage page;
  if (gpu_.has_value()) AddGpu(page, *gpu_);  // outside the lock: the driver may take its time
  MutexLock lock(mutex_);
  for (const auto& [xid, count] : xids_) {
    page.Counter("metp_gpu_xids_total", "Critical errors by the driver's number, since the worker started.",
                 {{"gpu", gpu_->identity().uuid}, {"xid", std::to_string(xid)}}, count);
  }
  DropEnded();
  page.Gauge("metp_worker_connected", "1 while this worker has a session with its coordinator.",
             {{"worker", config_.name}}, connected_ ? 1 : 0);
  double running = 0;
  for (const auto& [key, rank] : ranks_) running += rank.ended.has_value() ? 0 : 1;
  page.Gauge("metp_ranks_running", "Rank processes of this worker.", {}, running);
  for (const auto& [key, rank] : ranks_) {
    if (rank.last.step() == 0) continue;
    const Labels labels = {{"job", rank.job}, {"rank", std::to_string(key.second)}};
    page.Gauge("metp_step", "Last optimizer step done.", labels, rank.last.step());
    page.Gauge("metp_loss", "Loss of the last step, mean over the counted targets.", labels,
               rank.last.loss());
    page.Gauge("metp_gradient_norm", "Global gradient norm of the last step, before clipping.", labels,
               rank.last.grad_norm());
    page.Gauge("metp_learning_rate", "Learning rate of the last step.", labels, rank.last.learning_rate());
    page.Gauge("metp_step_seconds", "Time of the last step.", labels, rank.last.step_seconds());
    page.Counter("metp_steps_total", "Steps done.", labels, rank.steps);
    page.Counter("metp_step_seconds_total", "Time of all steps.", labels, rank.step_seconds);
    page.Counter("metp_tokens_total", "Tokens of the global batches trained on.", labels, rank.tokens);
    page.Counter("metp_sent_bytes_total", "Bytes sent round the ring.", labels,
                 static_cast<double>(rank.last.sent_bytes()));
    page.Gauge("metp_memory_peak_bytes", "Most memory held at once since the rank started.", labels,
               static_cast<double>(rank.last.peak_bytes()));
    page.Gauge("metp_memory_capacity_bytes", "Memory of the device, of which ranks may use most.", labels,
               static_cast<double>(memory_bytes_));
    page.Counter("metp_checkpoint_seconds_total", "Copying the state for checkpoints and waiting for one.",
                 labels, rank.checkpoint_seconds);
    AddHost(page, labels, rank.last.host_peak_bytes(), rank.host);
    if (const auto room = rank.disk == nullptr ? std::nullopt : rank.disk->Last())
      AddDisk(page, labels, *room);
    for (const auto& [category, bytes] : rank.last.current_bytes()) {
      page.Gauge("metp_memory_bytes", "Memory held at the end of the last step.",
                 With(labels, "category", category), static_cast<double>(bytes));
    }
    for (const auto& [category, bytes] : rank.last.peak_bytes_by_category()) {
      page.Gauge("metp_memory_at_peak_bytes", "Memory held at the moment of the peak; sums to the peak.",
                 With(labels, "category", category), static_cast<double>(bytes));
    }
    for (const auto& [pass, times] : rank.passes) AddPass(page, labels, pass, times);
  }
  return page.Text();
}

}  // namespace metp
