#pragma once

// What the ranks of this worker have reported, as Prometheus series. Reports update plain numbers under one
// lock; text is made at the scrape. A rank's series go some time after its end (WorkerConfig::metrics_kept),
// or at once when the next rank starts. Names and labels: the table in
// deploy/prometheus/README.md. Thread-safe.

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "metp/v1/report.pb.h"
#include "proto/support/clock.h"
#include "proto/support/mutex.h"
#include "worker/daemon/config.h"
#include "worker/daemon/disk_watch.h"
#include "worker/telemetry/gpu/nvml.h"

namespace metp {

class WorkerMetrics {
 public:
  /// `ask`: of DiskWatch.
  WorkerMetrics(const WorkerConfig& config, const Clock& clock, DiskWatch::Ask ask = RoomOf)
      : config_(config), clock_(clock), disks_(std::move(ask)) {}

  /// A worker's device, to be asked at each scrape; before the first.
  void ShowGpu(const Gpu& gpu) { gpu_ = gpu; }
  /// What a rank may hold of the device's memory; before the first.
  void ShowMemory(int64_t bytes) { memory_bytes_ = bytes; }
  /// `checkpoints`: the job's checkpoint.directory; empty: it has none.
  void RankStarted(const std::string& job, const std::string& attempt, int rank,
                   const std::string& checkpoints = "") METP_EXCLUDES(mutex_);
  void Observe(const std::string& attempt, const v1::StepReport& report) METP_EXCLUDES(mutex_);
  void RankEnded(const std::string& attempt, int rank) METP_EXCLUDES(mutex_);
  /// The driver has reported a critical error of the device that ShowGpu showed.
  void NoteXid(int xid) METP_EXCLUDES(mutex_);
  void SetConnected(bool connected) METP_EXCLUDES(mutex_);

  std::string Text() METP_EXCLUDES(mutex_);

 private:
  struct Rank {
    std::string job;
    std::shared_ptr<const DiskWatch::Folder> disk;  // of its checkpoints; null: it has none
    v1::StepReport last;
    std::map<std::string, v1::PassTimes> passes;  // summed, as the rest
    double steps = 0, tokens = 0, step_seconds = 0, checkpoint_seconds = 0;
    v1::HostTimes host;
    std::optional<Clock::Time> ended;
  };
  void DropEnded() METP_REQUIRES(mutex_);

  const WorkerConfig& config_;
  const Clock& clock_;
  std::optional<Gpu> gpu_;
  int64_t memory_bytes_ = 0;
  DiskWatch disks_;
  Mutex mutex_;
  std::map<std::pair<std::string, int>, Rank> ranks_ METP_GUARDED_BY(mutex_);  // by attempt and rank
  std::map<int, double> xids_ METP_GUARDED_BY(mutex_);                         // times, by number
  bool connected_ METP_GUARDED_BY(mutex_) = false;
};

}  // namespace metp
