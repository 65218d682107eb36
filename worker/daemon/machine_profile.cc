#include "worker/daemon/machine_profile.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "proto/support/status_macros.h"
#include "proto/support/version.h"
#include "worker/backend/sim/profile.h"
#include "worker/rank/process_spawn.h"

namespace metp {
namespace {

constexpr int kAskMs = 100;  // between looks at `cancelled`

absl::Status LeaveEarly() { return absl::CancelledError("asked to leave before the machine was measured"); }

/// Everything that `metp-rank probe` prints.
absl::StatusOr<std::string> RunProbe(const WorkerConfig& config, const Device& device,
                                     const std::function<bool()>& cancelled) {
  METP_ASSIGN_OR_RETURN(SpawnedChild child, SpawnChild({config.rank_program, "probe", "--comm", "gloo",
                                                        "--ranks", absl::StrCat(config.workers_here),
                                                        "--threads", absl::StrCat(device.threads)},
                                                       {}));
  std::string text;
  while (true) {
    if (cancelled()) {
      SendPidfdSignal(child.pidfd, SIGKILL);
      waitpid(child.pid, nullptr, 0);
      return LeaveEarly();
    }
    pollfd output{child.output.get(), POLLIN, 0};
    if (poll(&output, 1, kAskMs) <= 0) continue;
    char buffer[4096];
    const ssize_t n = read(child.output.get(), buffer, sizeof buffer);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) break;
    if (n > 0) text.append(buffer, static_cast<size_t>(n));
  }
  int status = 0;
  waitpid(child.pid, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return text;
  return absl::InternalError(
      absl::StrCat(config.rank_program, " probe failed: ", absl::StripAsciiWhitespace(text)));
}

/// An exclusive lock on a file, which it makes; waits for whoever has it.
absl::StatusOr<Descriptor> Lock(const std::string& path, const std::function<bool()>& cancelled) {
  Descriptor file(open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0644));
  if (!file.open()) return absl::UnavailableError(absl::StrCat(path, ": ", std::strerror(errno)));
  while (flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR)
      return absl::UnavailableError(absl::StrCat(path, ": ", std::strerror(errno)));
    if (cancelled()) return LeaveEarly();
    std::this_thread::sleep_for(std::chrono::milliseconds(kAskMs));
  }
  return file;
}

absl::StatusOr<v1::DeviceProfile> Measure(const WorkerConfig& config, const Device& device,
                                          const std::function<bool()>& cancelled) {
  METP_ASSIGN_OR_RETURN(const std::string text, RunProbe(config, device, cancelled));
  METP_ASSIGN_OR_RETURN(v1::DeviceProfile profile, ParseProfile(text, "the measured profile"));
  profile.set_name(config.node);
  profile.set_memory_bytes(device.memory_bytes);
  return profile;
}

}  // namespace

absl::StatusOr<std::optional<v1::DeviceProfile>> ProfileOfThisWorker(const WorkerConfig& config,
                                                                     const Device& device,
                                                                     const std::function<bool()>& cancelled) {
  if (config.profile == "none") return std::nullopt;
  if (config.profile != "measure") return LoadProfile(config.profile);
  std::error_code error;
  std::filesystem::create_directories(config.profile_cache, error);
  const std::string path = absl::StrCat(config.profile_cache, "/profile-", kVersion, "-", config.node, "-",
                                        config.workers_here, "x", device.threads, ".yaml");
  const absl::StatusOr<Descriptor> lock = Lock(path + ".lock", cancelled);
  if (absl::IsCancelled(lock.status())) return lock.status();
  if (!lock.ok()) return Measure(config, device, cancelled);  // nothing can be kept here
  if (std::filesystem::exists(path, error)) {
    if (absl::StatusOr<v1::DeviceProfile> kept = LoadProfile(path); kept.ok()) return kept;
  }
  METP_ASSIGN_OR_RETURN(const v1::DeviceProfile profile, Measure(config, device, cancelled));
  const std::string partial = path + ".partial";
  std::ofstream file(partial);
  file << ProfileToYaml(profile);
  file.close();
  if (file) std::filesystem::rename(partial, path, error);
  return profile;
}

std::string DefaultProfileCache() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache == '/')
    return absl::StrCat(cache, "/metp");
  if (const char* home = std::getenv("HOME"); home != nullptr && *home == '/')
    return absl::StrCat(home, "/.cache/metp");
  return absl::StrCat("/tmp/metp-", getuid());
}

}  // namespace metp
