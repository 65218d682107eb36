#pragma once

// Every tunable of the worker daemon, with its unit, default and what changes when it moves. Filled by main,
// read by all.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "worker/telemetry/gpu/nvml.h"

namespace metp {

struct WorkerConfig {
  std::string coordinator = "127.0.0.1:7070";
  /// How the worker is called in the cluster; unique.
  std::string name;
  /// Metrics, HOST:PORT; port 0 takes a free one.
  std::string http = "127.0.0.1:0";
  /// The machine, as the coordinator tells machines apart: ring neighbours are placed on one where that is possible.
  std::string node;
  /// Workers that share this machine evenly, this one included: cores and memory are divided by it.
  int workers_here = 1;
  /// Compute threads of a rank; 0: this worker's share of the cores.
  int threads = 0;
  /// The GPU that its ranks run on, by index, UUID or a beginning of the UUID; empty: the CPU.
  std::string gpu;
  /// NVIDIA's management library, by a name that the loader finds or a path.
  std::string nvml_library = kNvmlLibrary;
  /// Where the workers of this machine keep who has which GPU.
  std::string lock_folder;
  /// Device memory that counts as none: less than a program that computes takes at its start, more than a monitor does.
  int64_t gpu_slack_bytes = 256 << 20;
  /// How long a rank's end is kept back, and a start put off, until device memory has come back; after it the end is told
  /// with what is missing, and the start refused.
  std::chrono::milliseconds gpu_memory_wait{10000};
  /// Between looks meanwhile.
  std::chrono::milliseconds gpu_look{50};
  /// How long the driver may take to say what broke, when a rank died by itself.
  std::chrono::milliseconds gpu_error_wait{200};
  /// What the coordinator plans this worker's ranks by: a built-in device profile or a file, "none", or "measure".
  std::string profile = "measure";
  /// Where a measured profile is kept, so that it is measured once.
  std::string profile_cache;
  /// How long it may take. Beyond, the worker goes without: its jobs are planned by even split.
  std::chrono::milliseconds profile_timeout{120000};
  /// Where ring neighbours reach this worker's ranks.
  std::string address = "127.0.0.1";
  std::string rank_program;

  /// Between signs of life. Longer than a third of the coordinator's suspect_after makes healthy workers look
  /// dead.
  std::chrono::milliseconds heartbeat{1000};
  /// Silence of the coordinator after which the connection is given up and dialled anew.
  std::chrono::milliseconds coordinator_silence{10000};
  /// Wait before dialling again: doubles from the first to the last, each with up to half of it taken off at
  /// random, so that workers do not all return at once.
  std::chrono::milliseconds first_backoff{200};
  std::chrono::milliseconds last_backoff{5000};

  /// From SIGTERM to SIGKILL of a rank that is to leave: what a step's end and a checkpoint may take.
  std::chrono::milliseconds checkpoint_grace{25000};
  /// From SIGINT to SIGKILL of a rank whose attempt is over.
  std::chrono::milliseconds stop_grace{5000};
  /// From SIGQUIT to SIGKILL of a rank that is taken to hang: what saying where it is may take.
  std::chrono::milliseconds dump_grace{1000};
  /// How long a leaving worker waits for the coordinator to acknowledge what it knows.
  std::chrono::milliseconds leave_grace{5000};

  /// What is kept while the coordinator does not acknowledge; beyond it the oldest steps and output are
  /// dropped.
  size_t outbox_bytes = 16 << 20;
  /// Of one message; gRPC refuses 4 MiB.
  size_t batch_bytes = 512 << 10;

  /// How long a rank's series stay in /metrics after its end, so that a last scrape sees its last values.
  std::chrono::milliseconds metrics_kept{60000};
};

}  // namespace metp
