#pragma once

// Every tunable of the coordinator, with its unit, default and what changes when it moves. Filled by main,
// read by all.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

namespace metp {

struct CoordinatorConfig {
  /// Where clients and workers connect, HOST:PORT; port 0 takes a free one.
  std::string listen = "127.0.0.1:7070";
  /// Metrics and status page, HOST:PORT; port 0 takes a free one.
  std::string http = "127.0.0.1:7071";

  /// Silence after which a worker is shown as suspect and gets no new ranks. Workers speak every second:
  /// below 2 s a busy machine looks dead.
  std::chrono::milliseconds suspect_after{3000};
  /// Silence after which a worker is lost and its ranks count as gone. Longer: survives longer pauses of the
  /// network, but notices a dead machine later.
  std::chrono::milliseconds lease{10000};
  /// How long a lost worker stays in the list of workers.
  std::chrono::milliseconds lost_worker_kept{600000};

  /// A rank that complains of its neighbour may be heard before the neighbour's own end: the other ranks are
  /// stopped this long after, so that they can still say what really happened.
  std::chrono::milliseconds cause_window{500};

  /// Ended jobs that are kept with steps and output; the oldest ended one goes when there are more.
  int finished_jobs_kept = 200;
  /// Output kept of one job; older lines are dropped and counted.
  size_t log_lines = 20000;
  size_t log_bytes = 4 << 20;

  /// Bounds of one streamed message; gRPC refuses 4 MiB.
  int steps_per_message = 2000;
  size_t bytes_per_message = 1 << 20;
  int jobs_per_page = 100;

  /// How long open calls may take to end when the coordinator stops.
  std::chrono::milliseconds shutdown_grace{2000};
};

}  // namespace metp
