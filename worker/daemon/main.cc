// metp-worker: one per device. Keeps a session with the coordinator, starts and stops its ranks, serves their
// metrics.

#include <unistd.h>

#include <atomic>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "CLI/CLI.hpp"
#include "proto/support/mutex.h"
#include "proto/support/names.h"
#include "proto/support/version.h"
#include "worker/daemon/daemon.h"
#include "worker/daemon/gpu.h"
#include "worker/daemon/machine_profile.h"

namespace metp {
namespace {

/// metp-rank beside this program.
std::string DefaultRankProgram() {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? "metp-rank" : (self.parent_path() / "metp-rank").string();
}

std::string HostName() {
  char name[HOST_NAME_MAX + 1] = {};
  return gethostname(name, sizeof name) == 0 ? name : "worker";
}

/// Says when the worker comes and goes, and a trouble only once.
class Voice {
 public:
  explicit Voice(const WorkerConfig& config) : config_(config) {}
  void Welcome(const std::string& metrics_url) {
    MutexLock lock(mutex_);
    last_trouble_.clear();
    std::printf("metp-worker %s ready: session with %s, metrics on %s\n", config_.name.c_str(),
                config_.coordinator.c_str(), metrics_url.c_str());
    std::fflush(stdout);
  }
  void Measuring() {
    std::fprintf(stderr,
                 "metp-worker %s: looking for this device's profile, or measuring it (once, some seconds)\n",
                 config_.name.c_str());
  }
  void NotKept(const absl::Status& status) {
    std::fprintf(stderr, "metp-worker %s: the profile is measured again at the next start: %s\n",
                 config_.name.c_str(), std::string(status.message()).c_str());
  }
  void NotMeasured(const absl::Status& status) {
    std::fprintf(stderr, "metp-worker %s: jobs are planned without this worker's profile: %s\n",
                 config_.name.c_str(), std::string(status.message()).c_str());
  }
  void Trouble(const std::string& why) {
    MutexLock lock(mutex_);
    if (why == last_trouble_ || leaving_) return;
    last_trouble_ = why;
    std::fprintf(stderr, "metp-worker %s: no session with %s: %s; trying again\n", config_.name.c_str(),
                 config_.coordinator.c_str(), why.c_str());
  }
  void GpuLost(const std::string& why) {
    std::fprintf(
        stderr,
        "metp-worker %s: its GPU does not answer: %s; it has to be reset, and this worker started again\n",
        config_.name.c_str(), why.c_str());
  }
  void Leaving(const char* signal) {
    MutexLock lock(mutex_);
    leaving_ = true;
    std::fprintf(stderr, "metp-worker %s: leaving on %s\n", config_.name.c_str(), signal);
  }

 private:
  const WorkerConfig& config_;
  Mutex mutex_;
  std::string last_trouble_ METP_GUARDED_BY(mutex_);
  bool leaving_ METP_GUARDED_BY(mutex_) = false;
};

/// Takes a signal that has come.
bool AskedToLeave(const sigset_t& signals) {
  const timespec now = {};
  return sigtimedwait(&signals, nullptr, &now) > 0;
}

int Run(const WorkerConfig& config, const sigset_t& signals) {
  if (access(config.rank_program.c_str(), X_OK) != 0) {
    std::fprintf(stderr, "metp-worker: --rank-program: '%s' is not a program that can be run\n",
                 config.rank_program.c_str());
    return 2;
  }
  RealClock clock;
  Voice voice(config);
  Device device = ProbeDevice(config.threads, config.workers_here);
  std::unique_ptr<GpuWatch> gpu;
  if (!config.gpu.empty()) {
    absl::StatusOr<TakenGpu> taken = TakeGpu(config);
    if (!taken.ok()) {
      std::fprintf(stderr, "metp-worker: --gpu: %s\n", std::string(taken.status().message()).c_str());
      return absl::IsInvalidArgument(taken.status()) ? 2 : 1;
    }
    device = WithGpu(device, config.workers_here, taken->gpu.identity(), taken->memory);
    gpu = std::make_unique<GpuWatch>(*std::move(taken), config.gpu_slack_bytes);
  }
  if (config.profile == "measure") voice.Measuring();
  absl::StatusOr<std::optional<v1::DeviceProfile>> profile = ProfileOfThisWorker(
      config, device, [&] { return AskedToLeave(signals); },
      [&](const absl::Status& why) { voice.NotKept(why); });
  if (absl::IsCancelled(profile.status())) {
    voice.Leaving("a signal");
    return 0;
  }
  if (!profile.ok()) {
    if (config.profile != "measure") {
      std::fprintf(stderr, "metp-worker: --profile: %s\n", std::string(profile.status().message()).c_str());
      return 2;
    }
    voice.NotMeasured(profile.status());
    profile = std::nullopt;
  }
  std::atomic<bool> lost = false;
  Daemon daemon(config, clock, device, std::move(gpu), *std::move(profile),
                {.on_welcome = [&] { voice.Welcome(daemon.metrics_url()); },
                 .on_trouble = [&](const std::string& why) { voice.Trouble(why); },
                 .on_gpu_lost =
                     [&](const std::string& why) {
                       if (lost.exchange(true)) return;
                       voice.GpuLost(why);
                       kill(getpid(), SIGTERM);  // it leaves, so that ranks are placed elsewhere
                     }});
  if (const absl::Status status = daemon.Start(); !status.ok()) {
    std::fprintf(stderr, "metp-worker: %s\n", std::string(status.message()).c_str());
    return 1;
  }
  int signal = 0;
  sigwait(&signals, &signal);
  voice.Leaving(signal == SIGTERM ? "SIGTERM" : "SIGINT");
  daemon.Leave();
  return lost ? 1 : 0;
}

}  // namespace
}  // namespace metp

int main(int argc, char** argv) {
  // Before any thread exists, so that all inherit it and only sigwait sees these.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  setenv("GRPC_VERBOSITY", "NONE", 0);  // errors are told by whoever meets them

  metp::WorkerConfig config;
  config.name = config.node = metp::HostName();
  config.profile_cache = metp::DefaultProfileCache();
  config.lock_folder = metp::DefaultLockFolder();
  config.rank_program = metp::DefaultRankProgram();
  int grace_ms = static_cast<int>(config.stop_grace.count()),
      checkpoint_grace_ms = static_cast<int>(config.checkpoint_grace.count());
  CLI::App app{"Runs the ranks of training jobs on one device"};
  app.set_version_flag("--version", metp::kVersion);
  app.add_option("--coordinator", config.coordinator, "HOST:PORT to dial")
      ->check(metp::HostPortError)
      ->capture_default_str();
  app.add_option("--name", config.name, "name in the cluster; unique; default: the host's name")
      ->check(metp::NameError);
  app.add_option("--http", config.http, "HOST:PORT of /metrics and /healthz; port 0 takes a free one")
      ->check(metp::HostPortError)
      ->capture_default_str();
  app.add_option("--workers-here", config.workers_here, "workers that share this machine, this one included")
      ->capture_default_str()
      ->check(CLI::Range(1, 256));
  app.add_option("--node", config.node, "name of this machine; default: the host's name")
      ->check(metp::NameError);
  app.add_option("--gpu", config.gpu,
                 "GPU that ranks run on: its index as nvidia-smi shows it, its UUID or how the UUID begins; "
                 "default: the CPU")
      ->check([](const std::string& gpu) { return gpu.empty() ? "expected an index or a UUID" : ""; });
  app.add_option("--nvml-library", config.nvml_library,
                 "NVIDIA's management library, where the loader does not find it")
      ->capture_default_str();
  app.add_option(
         "--profile", config.profile,
         "what jobs on this worker are planned by: measure (once, with metp-rank probe), none, a built-in "
         "profile's name or a profile file")
      ->capture_default_str();
  app.add_option("--profile-cache", config.profile_cache, "folder where the measured profile is kept")
      ->capture_default_str()
      ->check([](const std::string& folder) { return folder.empty() ? "expected a folder" : ""; });
  app.add_option("--threads", config.threads,
                 "compute threads of a rank; 0: this worker's share of the cores")
      ->capture_default_str()
      ->check(CLI::Range(0, 1024));
  app.add_option("--address", config.address, "where the ranks of other workers reach this one's")
      ->capture_default_str();
  app.add_option("--rank-program", config.rank_program, "default: metp-rank beside this program");
  app.add_option("--stop-grace-ms", grace_ms, "time a rank gets to end when its attempt is over")
      ->capture_default_str()
      ->check(CLI::Range(0, 3600000));
  app.add_option("--checkpoint-grace-ms", checkpoint_grace_ms,
                 "time a rank gets to end its step and write a checkpoint when this worker leaves (SIGTERM)")
      ->capture_default_str()
      ->check(CLI::Range(0, 3600000));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  config.stop_grace = std::chrono::milliseconds(grace_ms);
  config.checkpoint_grace = std::chrono::milliseconds(checkpoint_grace_ms);
  return metp::Run(config, signals);
}
