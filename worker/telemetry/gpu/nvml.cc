#include "worker/telemetry/gpu/nvml.h"

#include <dlfcn.h>

#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/status_macros.h"
#include "worker/telemetry/gpu/nvml_api.h"

namespace metp {

/// The open library; the last who uses it closes it.
struct NvmlLibrary {
  void* handle = nullptr;
  bool initialized = false;
  nvml::Functions call = {};
  std::string driver;
  int cuda = 0;  // 13000: 13.0; 0: unknown

  NvmlLibrary() = default;
  NvmlLibrary(const NvmlLibrary&) = delete;
  NvmlLibrary& operator=(const NvmlLibrary&) = delete;
  ~NvmlLibrary() {
    if (initialized) call.shutdown();
    if (handle != nullptr) dlclose(handle);
  }
  absl::Status Check(const char* function, nvml::Result result) const;
};

struct NvmlEvents {
  std::shared_ptr<const NvmlLibrary> library;
  nvml::EventSet set = nullptr;

  ~NvmlEvents() {
    if (set != nullptr) library->call.event_set_free(set);
  }
};

absl::Status NvmlLibrary::Check(const char* function, nvml::Result result) const {
  if (result == nvml::kSuccess) return absl::OkStatus();
  const std::string what = absl::StrCat(function, ": ", call.error_string(result));
  switch (result) {
    case nvml::kNotSupported:
      return absl::UnimplementedError(what);
    case nvml::kNoPermission:
      return absl::PermissionDeniedError(what);
    case nvml::kGpuIsLost:
    case nvml::kResetRequired:
      return absl::UnavailableError(what);
    default:
      return absl::InternalError(what);
  }
}

namespace {

constexpr int kMostXids = 64;  // of one Take: a device may report the same without end

std::string Needed() {
  return absl::StrCat("needed is one for CUDA ", kLeastCudaMajor, ": ", kLeastDriver, " or newer");
}

absl::Status NoDriver(const std::string& why) {
  return absl::NotFoundError(absl::StrCat("found no NVIDIA driver (", why, "); ", Needed(),
                                          ", and in a container access to the GPUs"));
}

absl::Status TooOld(const NvmlLibrary& library, const std::string& lacks) {
  std::string found = absl::StrCat("found NVIDIA driver ", library.driver);
  if (library.cuda > 0)
    absl::StrAppend(&found, " (CUDA ", library.cuda / 1000, ".", library.cuda % 1000 / 10, ")");
  if (!lacks.empty()) absl::StrAppend(&found, ", which lacks ", lacks);
  return absl::FailedPreconditionError(absl::StrCat(found, "; ", Needed()));
}

/// Looks functions up and remembers the first that is not there.
class Finder {
 public:
  explicit Finder(void* library) : library_(library) {}
  template <typename Function>
  void operator()(const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(library_, name));
    if (function == nullptr && missing_.empty()) missing_ = name;
  }
  const std::string& missing() const { return missing_; }

 private:
  void* library_;
  std::string missing_;
};

/// What every NVML of the last ten years has.
std::string FindBasics(void* library, nvml::Functions& call) {
  Finder find(library);
  find("nvmlInit_v2", call.init);
  find("nvmlShutdown", call.shutdown);
  find("nvmlErrorString", call.error_string);
  find("nvmlSystemGetDriverVersion", call.driver_version);
  return find.missing();
}

std::string FindRest(void* library, nvml::Functions& call) {
  Finder find(library);
  find("nvmlDeviceGetCount_v2", call.count);
  find("nvmlDeviceGetHandleByIndex_v2", call.by_index);
  find("nvmlDeviceGetUUID", call.uuid);
  find("nvmlDeviceGetName", call.name);
  find("nvmlDeviceGetPciInfo_v3", call.pci);
  find("nvmlDeviceGetCudaComputeCapability", call.capability);
  find("nvmlDeviceGetComputeMode", call.compute_mode);
  find("nvmlDeviceGetMigMode", call.mig_mode);
  find("nvmlDeviceGetMemoryInfo_v2", call.memory);
  find("nvmlDeviceGetComputeRunningProcesses_v3", call.processes);
  find("nvmlDeviceGetTotalEccErrors", call.ecc_errors);
  find("nvmlEventSetCreate", call.event_set_create);
  find("nvmlEventSetFree", call.event_set_free);
  find("nvmlEventSetWait_v2", call.event_set_wait);
  find("nvmlDeviceRegisterEvents", call.register_events);
  return find.missing();
}

absl::Status Initialize(NvmlLibrary& library) {
  const nvml::Result result = library.call.init();
  if (result == nvml::kDriverNotLoaded) return NoDriver(library.call.error_string(result));
  if (result == nvml::kLibraryMismatch) {
    return absl::FailedPreconditionError(
        "the NVIDIA driver was updated but the old one is still loaded: load it anew or restart the machine");
  }
  METP_RETURN_IF_ERROR(library.Check("nvmlInit_v2", result));
  library.initialized = true;
  return absl::OkStatus();
}

absl::Status CheckVersion(NvmlLibrary& library) {
  char version[nvml::kTextLength] = {};
  METP_RETURN_IF_ERROR(
      library.Check("nvmlSystemGetDriverVersion", library.call.driver_version(version, nvml::kTextLength)));
  library.driver = version;
  Finder find(library.handle);
  find("nvmlSystemGetCudaDriverVersion_v2", library.call.cuda_version);
  // Fails where libcuda.so is not there to be asked.
  if (!find.missing().empty() || library.call.cuda_version(&library.cuda) != nvml::kSuccess) library.cuda = 0;
  if (std::atoi(version) < kLeastDriver && library.cuda < 1000 * kLeastCudaMajor) return TooOld(library, "");
  return absl::OkStatus();
}

nvml::Device Handle(void* device) { return static_cast<nvml::Device>(device); }

}  // namespace

absl::StatusOr<Nvml> Nvml::Open(const std::string& path) {
  const auto library = std::make_shared<NvmlLibrary>();
  library->handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library->handle == nullptr) return NoDriver(dlerror());
  if (const std::string missing = FindBasics(library->handle, library->call); !missing.empty())
    return NoDriver(absl::StrCat(path, " has no ", missing));
  METP_RETURN_IF_ERROR(Initialize(*library));
  METP_RETURN_IF_ERROR(CheckVersion(*library));
  if (const std::string missing = FindRest(library->handle, library->call); !missing.empty())
    return TooOld(*library, missing);
  return Nvml(library);
}

const std::string& Nvml::driver() const { return library_->driver; }

absl::StatusOr<std::vector<absl::StatusOr<Gpu>>> Nvml::Gpus() const {
  unsigned count = 0;
  METP_RETURN_IF_ERROR(library_->Check("nvmlDeviceGetCount_v2", library_->call.count(&count)));
  std::vector<absl::StatusOr<Gpu>> gpus;
  for (unsigned i = 0; i < count; ++i) gpus.push_back(At(static_cast<int>(i)));
  return gpus;
}

absl::StatusOr<Gpu> Nvml::At(int index) const {
  const NvmlLibrary& library = *library_;
  nvml::Device device = nullptr;
  METP_RETURN_IF_ERROR(library.Check("nvmlDeviceGetHandleByIndex_v2",
                                     library.call.by_index(static_cast<unsigned>(index), &device)));
  char uuid[nvml::kTextLength] = {}, name[nvml::kTextLength] = {};
  nvml::PciInfo pci = {};
  Gpu gpu(library_, device);
  GpuIdentity& identity = gpu.identity_;
  METP_RETURN_IF_ERROR(
      library.Check("nvmlDeviceGetUUID", library.call.uuid(device, uuid, nvml::kTextLength)));
  METP_RETURN_IF_ERROR(
      library.Check("nvmlDeviceGetName", library.call.name(device, name, nvml::kTextLength)));
  METP_RETURN_IF_ERROR(library.Check("nvmlDeviceGetPciInfo_v3", library.call.pci(device, &pci)));
  METP_RETURN_IF_ERROR(library.Check("nvmlDeviceGetCudaComputeCapability",
                                     library.call.capability(device, &identity.major, &identity.minor)));
  identity.index = index;
  identity.uuid = uuid;
  identity.name = name;
  identity.bus = pci.bus_id;
  identity.driver = library.driver;
  return gpu;
}

std::string Gpu::Label() const {
  return absl::StrCat(identity_.index, " (", identity_.uuid, ", ", identity_.name, ")");
}

absl::StatusOr<GpuMemory> Gpu::Memory() const {
  nvml::Memory memory = {};
  memory.version = nvml::kMemoryVersion;
  METP_RETURN_IF_ERROR(
      library_->Check("nvmlDeviceGetMemoryInfo_v2", library_->call.memory(Handle(device_), &memory)));
  GpuMemory result;
  result.total_bytes = static_cast<int64_t>(memory.total - memory.reserved);
  // Not memory.used: whether that has what the driver keeps in it has changed between drivers.
  result.used_bytes = result.total_bytes - static_cast<int64_t>(memory.free);
  return result;
}

absl::StatusOr<std::vector<GpuProcess>> Gpu::Processes() const {
  std::vector<nvml::ProcessInfo> infos(16);
  unsigned count = 0;
  nvml::Result result = nvml::kInsufficientSize;
  for (int i = 0; i < 8 && result == nvml::kInsufficientSize; ++i) {  // there may be more each time
    if (i > 0) infos.resize(2 * infos.size());
    count = static_cast<unsigned>(infos.size());
    result = library_->call.processes(Handle(device_), &count, infos.data());
  }
  METP_RETURN_IF_ERROR(library_->Check("nvmlDeviceGetComputeRunningProcesses_v3", result));
  std::vector<GpuProcess> processes;
  for (unsigned i = 0; i < count; ++i) {
    processes.push_back({infos[i].pid, std::nullopt});
    if (infos[i].memory != nvml::kNotAvailable)
      processes.back().bytes = static_cast<int64_t>(infos[i].memory);
  }
  return processes;
}

absl::StatusOr<int64_t> Gpu::UncorrectedErrors() const {
  unsigned long long errors = 0;
  METP_RETURN_IF_ERROR(library_->Check(
      "nvmlDeviceGetTotalEccErrors",
      library_->call.ecc_errors(Handle(device_), nvml::kUncorrected, nvml::kVolatile, &errors)));
  return static_cast<int64_t>(errors);
}

absl::StatusOr<bool> Gpu::Split() const {
  unsigned current = 0, pending = 0;
  const nvml::Result result = library_->call.mig_mode(Handle(device_), &current, &pending);
  if (result == nvml::kNotSupported) return false;
  METP_RETURN_IF_ERROR(library_->Check("nvmlDeviceGetMigMode", result));
  return current == nvml::kMigEnabled;
}

absl::StatusOr<bool> Gpu::ComputeProhibited() const {
  int mode = 0;
  METP_RETURN_IF_ERROR(
      library_->Check("nvmlDeviceGetComputeMode", library_->call.compute_mode(Handle(device_), &mode)));
  return mode == nvml::kComputeProhibited;
}

absl::StatusOr<std::unique_ptr<XidEvents>> Gpu::WatchXids() const {
  auto events = std::make_unique<NvmlEvents>();
  events->library = library_;
  const nvml::Functions& call = library_->call;
  METP_RETURN_IF_ERROR(library_->Check("nvmlEventSetCreate", call.event_set_create(&events->set)));
  METP_RETURN_IF_ERROR(
      library_->Check("nvmlDeviceRegisterEvents",
                      call.register_events(Handle(device_), nvml::kXidCriticalError, events->set)));
  return std::make_unique<XidEvents>(std::move(events));
}

XidEvents::XidEvents(std::unique_ptr<NvmlEvents> events) : events_(std::move(events)) {}
XidEvents::~XidEvents() = default;

std::vector<int> XidEvents::Take(std::chrono::milliseconds wait) {
  std::vector<int> xids;
  for (int i = 0; i < kMostXids; ++i) {
    nvml::EventData event = {};
    const unsigned timeout_ms = i == 0 ? static_cast<unsigned>(wait.count()) : 0;
    if (events_->library->call.event_set_wait(events_->set, &event, timeout_ms) != nvml::kSuccess) break;
    if (event.type == nvml::kXidCriticalError) xids.push_back(static_cast<int>(event.data));
  }
  return xids;
}

}  // namespace metp
