#include "worker/daemon/machine_profile.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
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
constexpr size_t kMostText = 64 << 10;

absl::Status LeaveEarly() { return absl::CancelledError("asked to leave before the machine was measured"); }

/// Appends what there is to read now, as far as a profile can be long.
void ReadSome(const Descriptor& from, std::string& to) {
  char buffer[4096];
  for (int i = 0; i < 64; ++i) {  // whoever writes without end must not keep us from looking at the time
    const ssize_t n = read(from.get(), buffer, sizeof buffer);
    if (n <= 0) return;
    if (to.size() < kMostText) to.append(buffer, static_cast<size_t>(n));
  }
}

/// The process and whatever it has started.
class Probe {
 public:
  explicit Probe(SpawnedChild child) : child_(std::move(child)) {}
  ~Probe() {
    kill(-child_.pid, SIGKILL);
    if (!reaped_) waitpid(child_.pid, nullptr, 0);
  }
  Probe(const Probe&) = delete;
  Probe& operator=(const Probe&) = delete;

  /// Waits a little, reading; true when it has ended.
  bool Look() {
    pollfd files[3] = {
        {child_.pidfd.get(), POLLIN, 0}, {child_.socket.get(), POLLIN, 0}, {child_.output.get(), POLLIN, 0}};
    // A stream that was closed would wake us all the time: the end of the process is what counts.
    poll(files, closed_ ? 1 : 3, kAskMs);
    closed_ = closed_ || ((files[1].revents | files[2].revents) & (POLLHUP | POLLERR)) != 0;
    ReadSome(child_.socket, text_);
    ReadSome(child_.output, said_);
    if ((files[0].revents & POLLIN) == 0) return false;
    waitpid(child_.pid, &status_, 0);
    reaped_ = true;
    ReadSome(child_.socket, text_);
    ReadSome(child_.output, said_);
    return true;
  }
  absl::StatusOr<std::string> Result() const {
    if (WIFEXITED(status_) && WEXITSTATUS(status_) == 0) return text_;
    const absl::string_view said = absl::StripAsciiWhitespace(said_);
    return absl::InternalError(absl::StrCat(WIFSIGNALED(status_) ? "killed by signal " : "exit code ",
                                            WIFSIGNALED(status_) ? WTERMSIG(status_) : WEXITSTATUS(status_),
                                            said.empty() ? "" : ": ", said));
  }

 private:
  SpawnedChild child_;
  std::string text_, said_;
  bool closed_ = false, reaped_ = false;
  int status_ = 0;
};

/// The profile that `metp-rank probe` writes to its descriptor.
absl::StatusOr<std::string> RunProbe(const WorkerConfig& config, const Device& device,
                                     const std::function<bool()>& cancelled) {
  const bool cpu = device.gpu.empty();
  METP_ASSIGN_OR_RETURN(
      SpawnedChild child,
      SpawnChild({config.rank_program, "probe", cpu ? "--comm" : "--device", cpu ? "gloo" : "gpu", "--ranks",
                  absl::StrCat(config.workers_here), "--threads", absl::StrCat(device.threads), "--fd",
                  absl::StrCat(kChildSocket)},
                 ComputeEnvironment(device.gpu)));
  Probe probe(std::move(child));
  const auto give_up = std::chrono::steady_clock::now() + config.profile_timeout;
  while (!probe.Look()) {
    if (cancelled()) return LeaveEarly();
    if (std::chrono::steady_clock::now() > give_up)
      return absl::DeadlineExceededError(absl::StrCat(config.rank_program, " probe: no end after ",
                                                      config.profile_timeout.count() / 1000, " s"));
  }
  absl::StatusOr<std::string> result = probe.Result();
  if (result.ok()) return result;
  return absl::InternalError(absl::StrCat(config.rank_program, " probe: ", result.status().message()));
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
  return ParseProfile(text, "the measured profile");
}

/// What is true of this worker now, whenever the rest was measured.
v1::DeviceProfile OfThisWorker(v1::DeviceProfile profile, const WorkerConfig& config, const Device& device) {
  profile.set_name(config.node);
  profile.set_memory_bytes(device.memory_bytes);
  if (!device.gpu.empty()) profile.set_host_memory_bytes(device.host_memory_bytes);
  // Links between machines were not measured. What a GPU's product is known to have serves until they are.
  const bool known = profile.node_link().SerializeAsString() != profile.link().SerializeAsString();
  if (device.gpu.empty() || !known) profile.clear_node_link();
  return profile;
}

/// The file of a kind of worker: those of one machine that are alike share it.
std::string CacheFile(const WorkerConfig& config, const Device& device) {
  std::string file = absl::StrCat(config.profile_cache, "/profile-", kVersion, "-", config.node, "-",
                                  config.workers_here, "x", device.threads);
  if (!device.gpu.empty()) {
    absl::StrAppend(&file, "-");
    for (const char c : device.kind) file += absl::ascii_isalnum(c) ? c : '-';
  }
  return file + ".yaml";
}

}  // namespace

absl::StatusOr<std::optional<v1::DeviceProfile>> ProfileOfThisWorker(const WorkerConfig& config,
                                                                     const Device& device,
                                                                     const std::function<bool()>& cancelled,
                                                                     const NotKept& not_kept) {
  if (config.profile == "none") return std::nullopt;
  if (config.profile != "measure") {
    METP_ASSIGN_OR_RETURN(v1::DeviceProfile profile, LoadProfile(config.profile));
    // Whatever it was made for: a plan in bf16 does not run on a CPU.
    if (device.gpu.empty()) profile.set_precision(v1::DeviceProfile::PRECISION_FP32);
    return profile;
  }
  std::error_code error;
  std::filesystem::create_directories(config.profile_cache, error);
  const std::string path = CacheFile(config, device);
  const absl::StatusOr<Descriptor> lock = Lock(path + ".lock", cancelled);
  if (absl::IsCancelled(lock.status())) return lock.status();
  if (lock.ok() && std::filesystem::exists(path, error)) {
    const absl::StatusOr<v1::DeviceProfile> kept = LoadProfile(path);
    if (kept.ok()) return OfThisWorker(*kept, config, device);
  }
  METP_ASSIGN_OR_RETURN(const v1::DeviceProfile profile, Measure(config, device, cancelled));
  if (!lock.ok()) {
    not_kept(lock.status());
    return OfThisWorker(profile, config, device);
  }
  const std::string partial = path + ".partial";
  std::ofstream file(partial);
  file << ProfileToYaml(profile);
  file.close();
  error = std::make_error_code(std::errc::io_error);
  if (file) std::filesystem::rename(partial, path, error);
  if (error) {
    std::filesystem::remove(partial, error);
    not_kept(absl::UnavailableError(absl::StrCat(path, " cannot be written")));
  }
  return OfThisWorker(profile, config, device);
}

std::string DefaultProfileCache() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache == '/')
    return absl::StrCat(cache, "/metp");
  if (const char* home = std::getenv("HOME"); home != nullptr && *home == '/')
    return absl::StrCat(home, "/.cache/metp");
  return absl::StrCat("/tmp/metp-", getuid());
}

}  // namespace metp
