#pragma once

// Every tunable of the coordinator, with its unit, default and what changes when it moves. Filled by main,
// read by all.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace metp {

struct CoordinatorConfig {
  /// Where clients and workers connect, HOST:PORT; port 0 takes a free one.
  std::string listen = "127.0.0.1:7070";
  /// Metrics and status page, HOST:PORT; port 0 takes a free one.
  std::string http = "127.0.0.1:7071";

  /// Folder of the store; empty: it is in memory, and forgotten when the program ends.
  std::string state;

  /// Silence after which a worker is shown as suspect and gets no new ranks. Workers speak every second:
  /// below 2 s a busy machine looks dead.
  std::chrono::milliseconds suspect_after{3000};
  /// Silence after which a worker is lost and its ranks count as gone. Longer: survives longer pauses of the
  /// network, but notices a dead machine later.
  std::chrono::milliseconds lease{10000};
  /// A worker whose ranks leave because it goes gets no new ones for so long: what it may take until it has gone.
  std::chrono::milliseconds leaving_for{60000};
  /// How long a lost worker stays in the list of workers.
  std::chrono::milliseconds lost_worker_kept{600000};

  /// A rank that complains of its neighbour may be heard before the neighbour's own end: the other ranks are
  /// stopped this long after, so that they can still say what really happened.
  std::chrono::milliseconds cause_window{500};

  /// Wait before a job is tried again after a fault: doubles with every restart without a newer checkpoint, up to the limit.
  std::chrono::milliseconds restart_backoff{1000};
  std::chrono::milliseconds restart_backoff_limit{60000};
  /// How long a job that waits for workers which were there waits for them before it is planned again on those that are,
  /// where it allows for that. Shorter than a worker's restart makes jobs shrink needlessly.
  std::chrono::milliseconds replan_after{30000};

  /// An attempt hangs when a step takes hang_factor times the longest of the last 20, hang_floor at least. Lower finds hangs
  /// sooner, and takes a busy machine for one.
  double hang_factor = 10;
  std::chrono::milliseconds hang_floor{30000};
  /// The same for what cannot be learned: from an attempt's start to its first step, and while checkpoints are waited for.
  std::chrono::milliseconds start_timeout{600000};
  /// A rank computes so many times as long as the median one before it is called a straggler.
  double straggler_ratio = 1.5;

  /// Workers that the jobs of a namespace may hold at once; absent: any number.
  std::map<std::string, int> quotas;

  /// Ended jobs that are kept with steps and output; the oldest ended one goes when there are more.
  int finished_jobs_kept = 200;
  /// Memory and passes over time, for the status page: ended jobs that keep theirs, and points (half a KiB each) that all jobs
  /// may have together. Beyond that the job that reports next makes do with half of its points.
  int finished_histories_kept = 50;
  size_t history_points = 1 << 17;
  /// Output kept of one job; older lines are dropped and counted.
  size_t log_lines = 20000;
  size_t log_bytes = 4 << 20;

  /// Between two writes of what ranks have reported. Workers are told that it was taken after that: longer makes fewer,
  /// larger writes.
  std::chrono::milliseconds flush_interval{50};

  /// Bounds of one streamed message; gRPC refuses 4 MiB.
  int steps_per_message = 2000;
  size_t bytes_per_message = 1 << 20;
  int jobs_per_page = 100;

  /// How long open calls may take to end when the coordinator stops.
  std::chrono::milliseconds shutdown_grace{2000};
};

}  // namespace metp
