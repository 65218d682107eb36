#include "worker/daemon/gpu.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/support/status_macros.h"
#include "worker/backend/cuda/capability.h"

namespace metp {
namespace {

/// What programs that cannot be seen from here (of another container, or that draw on a screen) may hold.
constexpr int64_t kUnseenBytes = int64_t{2} << 30;

int64_t Mib(int64_t bytes) { return bytes >> 20; }

std::string Choices(const std::vector<absl::StatusOr<Gpu>>& gpus) {
  std::vector<std::string> choices;
  for (size_t i = 0; i < gpus.size(); ++i) {
    choices.push_back(gpus[i].ok() ? gpus[i]->Label()
                                   : absl::StrCat("(not ", i, ": ", gpus[i].status().message(), ")"));
  }
  return absl::StrCat("expected one of: ", absl::StrJoin(choices, ", "));
}

/// A folder that only this user writes to, made if it is not there.
absl::Status OwnFolder(const std::string& folder) {
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    return absl::UnavailableError(absl::StrCat(folder, ": ", std::strerror(errno)));
  struct stat found = {};
  if (lstat(folder.c_str(), &found) != 0)
    return absl::UnavailableError(absl::StrCat(folder, ": ", std::strerror(errno)));
  if (!S_ISDIR(found.st_mode) || found.st_uid != geteuid() || (found.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return absl::PermissionDeniedError(
        absl::StrCat(folder, ": expected a folder of this user's that no other can write to"));
  return absl::OkStatus();
}

std::string Content(const Descriptor& file) {
  char text[256];
  const ssize_t n = pread(file.get(), text, sizeof text, 0);
  return n > 0 ? std::string(text, static_cast<size_t>(n)) : "another metp-worker";
}

}  // namespace

absl::StatusOr<Gpu> ChooseGpu(const std::string& wanted, const std::vector<absl::StatusOr<Gpu>>& gpus) {
  if (gpus.empty()) {
    return absl::NotFoundError(
        "found an NVIDIA driver and no GPU; needed is one, and in a container access to it");
  }
  if (!wanted.empty() &&
      std::all_of(wanted.begin(), wanted.end(), [](unsigned char c) { return std::isdigit(c); })) {
    size_t index = 0;
    if (absl::SimpleAtoi(wanted, &index) && index < gpus.size()) return gpus[index];
    return absl::InvalidArgumentError(absl::StrCat("there is no GPU ", wanted, "; ", Choices(gpus)));
  }
  std::vector<Gpu> matches;
  for (const absl::StatusOr<Gpu>& gpu : gpus) {
    if (gpu.ok() && absl::StartsWithIgnoreCase(wanted, "GPU-") &&
        absl::StartsWithIgnoreCase(gpu->uuid(), wanted))
      matches.push_back(*gpu);
  }
  if (matches.size() == 1) return matches.front();
  return absl::InvalidArgumentError(
      absl::StrCat("'", wanted, "' ",
                   matches.empty() ? "is no GPU's index or UUID" : "begins the UUID of more than one GPU",
                   "; ", Choices(gpus)));
}

absl::Status CheckGpuFit(const Gpu& gpu) {
  const std::string which = absl::StrCat("GPU ", gpu.Label());
  METP_ASSIGN_OR_RETURN(const bool split, gpu.Split());
  if (split) {
    return absl::FailedPreconditionError(
        absl::StrCat(which, " is split into instances (MIG); needed is a whole one: nvidia-smi -i ",
                     gpu.uuid(), " -mig 0"));
  }
  METP_ASSIGN_OR_RETURN(const bool prohibited, gpu.ComputeProhibited());
  if (prohibited) {
    return absl::FailedPreconditionError(absl::StrCat(
        which, " is in compute mode PROHIBITED; needed is DEFAULT or EXCLUSIVE_PROCESS: nvidia-smi -i ",
        gpu.uuid(), " -c DEFAULT"));
  }
  const GpuIdentity& found = gpu.identity();
  const std::string unfit =
      cuda::WhyUnfit(found.major, found.minor, cuda::SharedBytesOf(found.major, found.minor));
  if (!unfit.empty()) return absl::FailedPreconditionError(absl::StrCat(which, ": ", unfit));
  return absl::OkStatus();
}

absl::Status CheckGpuIdle(const Gpu& gpu, int64_t slack_bytes) {
  METP_ASSIGN_OR_RETURN(const GpuMemory memory, gpu.Memory());
  const absl::StatusOr<std::vector<GpuProcess>> processes = gpu.Processes();
  bool busy = false;
  int64_t seen = 0;
  if (processes.ok()) {
    for (const GpuProcess& process : *processes) {
      busy = busy || process.bytes.value_or(memory.used_bytes) > slack_bytes;
      seen += process.bytes.value_or(0);
    }
  }
  if (!busy && memory.used_bytes - seen <= kUnseenBytes) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("GPU ", gpu.Label(), " is busy: ", Mib(memory.used_bytes),
                                             " MiB of its memory are in use, ", HoldersOf(gpu),
                                             "; needed is one that nobody else computes on"));
}

std::string HoldersOf(const Gpu& gpu) {
  const absl::StatusOr<std::vector<GpuProcess>> processes = gpu.Processes();
  if (!processes.ok() || processes->empty()) return "by programs that cannot be seen from here";
  return absl::StrJoin(*processes, ", ", [](std::string* text, const GpuProcess& process) {
    absl::StrAppend(text, "pid ", process.pid, " holds ");
    if (process.bytes.has_value()) {
      absl::StrAppend(text, Mib(*process.bytes), " MiB");
    } else {
      absl::StrAppend(text, "an unknown part");
    }
  });
}

absl::StatusOr<Descriptor> LockGpu(const std::string& uuid, const std::string& folder,
                                   const std::string& worker) {
  METP_RETURN_IF_ERROR(OwnFolder(folder));
  const std::string path = absl::StrCat(folder, "/", uuid, ".lock");
  Descriptor file(open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file.open()) return absl::UnavailableError(absl::StrCat(path, ": ", std::strerror(errno)));
  if (flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return absl::UnavailableError(absl::StrCat(path, ": ", std::strerror(errno)));
    return absl::AlreadyExistsError(
        absl::StrCat("GPU ", uuid, " is taken by ", Content(file), "; a GPU has one worker"));
  }
  const std::string text = absl::StrCat("metp-worker ", worker, " (pid ", getpid(), ")");
  // For people only: a full disk does not matter.
  [[maybe_unused]] const bool told =
      ftruncate(file.get(), 0) == 0 && pwrite(file.get(), text.data(), text.size(), 0) > 0;
  return file;
}

std::string DefaultLockFolder() { return absl::StrCat("/tmp/metp-", geteuid()); }

absl::StatusOr<TakenGpu> TakeGpu(const WorkerConfig& config) {
  METP_ASSIGN_OR_RETURN(const Nvml nvml, Nvml::Open(config.nvml_library));
  METP_ASSIGN_OR_RETURN(const std::vector<absl::StatusOr<Gpu>> gpus, nvml.Gpus());
  METP_ASSIGN_OR_RETURN(Gpu gpu, ChooseGpu(config.gpu, gpus));
  METP_RETURN_IF_ERROR(CheckGpuFit(gpu));
  METP_ASSIGN_OR_RETURN(Descriptor lock, LockGpu(gpu.uuid(), config.lock_folder, config.name));
  const auto give_up = std::chrono::steady_clock::now() + config.gpu_memory_wait;
  absl::Status idle = CheckGpuIdle(gpu, config.gpu_slack_bytes);
  while (!idle.ok() && std::chrono::steady_clock::now() < give_up) {
    std::this_thread::sleep_for(config.gpu_look);
    idle = CheckGpuIdle(gpu, config.gpu_slack_bytes);
  }
  METP_RETURN_IF_ERROR(idle);
  METP_ASSIGN_OR_RETURN(const GpuMemory memory, gpu.Memory());
  return TakenGpu{std::move(gpu), memory, std::move(lock)};
}

}  // namespace metp
