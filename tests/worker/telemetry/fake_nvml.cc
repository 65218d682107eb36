// A library that answers like NVIDIA's management library, from the file that METP_FAKE_NVML names; what a test puts
// there is in tests/support/fake_gpus.h. Read anew at each call.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "worker/telemetry/gpu/nvml_api.h"

namespace {

using namespace metp::nvml;

struct State {
  std::string uuid, name;
  unsigned long long total = 0, reserved = 0, used = 0, ecc = 0;
  std::vector<ProcessInfo> processes;
  std::vector<int> xids;
  int major = 0, minor = 0, mode = 0, mig = 0, error = 0;
};

struct Machine {
  std::string driver;
  int cuda = 0, init = 0;
  std::vector<State> gpus;
};

unsigned long long Mib(std::istream& words) {
  int64_t mib = 0;
  words >> mib;
  return mib < 0 ? kNotAvailable : static_cast<unsigned long long>(mib) << 20;
}

void ReadGpuLine(const std::string& what, std::istringstream& words, State& gpu) {
  if (what == "memory") {
    gpu.total = Mib(words);
    gpu.reserved = Mib(words);
    gpu.used = Mib(words);
  }
  if (what == "capability") words >> gpu.major >> gpu.minor;
  if (what == "mode") words >> gpu.mode;
  if (what == "mig") words >> gpu.mig;
  if (what == "ecc") words >> gpu.ecc;
  if (what == "error") words >> gpu.error;
  if (what == "xid") {
    gpu.xids.emplace_back();
    words >> gpu.xids.back();
  }
  if (what == "process") {
    ProcessInfo process = {};
    words >> process.pid;
    process.memory = Mib(words);
    gpu.processes.push_back(process);
  }
}

Machine Read() {
  Machine machine;
  const char* path = std::getenv("METP_FAKE_NVML");
  std::ifstream file(path == nullptr ? "" : path);
  std::string line, what;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    words >> what;
    if (what == "driver") words >> machine.driver;
    if (what == "cuda") words >> machine.cuda;
    if (what == "init") words >> machine.init;
    if (what == "gpu") {
      machine.gpus.emplace_back();
      words >> machine.gpus.back().uuid;
      std::getline(words >> std::ws, machine.gpus.back().name);
    } else if (!machine.gpus.empty()) {
      ReadGpuLine(what, words, machine.gpus.back());
    }
  }
  return machine;
}

Device HandleOf(size_t index) {
  return reinterpret_cast<Device>(static_cast<uintptr_t>(index + 1));  // only a number here
}
size_t IndexOf(Device device) { return static_cast<size_t>(reinterpret_cast<uintptr_t>(device)) - 1; }

/// body(state) where the device is there and well.
template <typename Body>
Result About(Device device, const Body& body) {
  const Machine machine = Read();
  if (IndexOf(device) >= machine.gpus.size()) return kNotFound;
  const State& gpu = machine.gpus[IndexOf(device)];
  return gpu.error != 0 ? gpu.error : body(gpu);
}

Result Text(const std::string& from, char* to, unsigned length) {
  if (from.size() >= length) return kInsufficientSize;
  std::memcpy(to, from.c_str(), from.size() + 1);
  return kSuccess;
}

/// What nvmlEventSet_t points to.
struct Events {
  Device device = nullptr;
  size_t told = 0;  // of the device's xids
};
Events* EventsOf(EventSet set) { return reinterpret_cast<Events*>(set); }

}  // namespace

extern "C" {

Result nvmlInit_v2() { return Read().init; }
Result nvmlShutdown() { return kSuccess; }
const char* nvmlErrorString(Result result) {
  switch (result) {
    case kNotSupported:
      return "Not Supported";
    case kDriverNotLoaded:
      return "Driver Not Loaded";
    case kGpuIsLost:
      return "GPU is lost";
    default:
      return "Unknown Error";
  }
}
Result nvmlSystemGetDriverVersion(char* text, unsigned length) { return Text(Read().driver, text, length); }
Result nvmlSystemGetCudaDriverVersion_v2(int* version) {
  *version = Read().cuda;
  return *version == 0 ? 12 : kSuccess;  // as where libcuda is not found
}
Result nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(Read().gpus.size());
  return kSuccess;
}
Result nvmlDeviceGetHandleByIndex_v2(unsigned index, Device* device) {
  *device = HandleOf(index);
  return About(*device, [](const State&) { return kSuccess; });
}
Result nvmlDeviceGetUUID(Device device, char* text, unsigned length) {
  return About(device, [&](const State& gpu) { return Text(gpu.uuid, text, length); });
}
Result nvmlDeviceGetName(Device device, char* text, unsigned length) {
  return About(device, [&](const State& gpu) { return Text(gpu.name, text, length); });
}
Result nvmlDeviceGetPciInfo_v3(Device device, PciInfo* pci) {
  *pci = {};
  return About(device, [&](const State&) { return Text("00000000:3B:00.0", pci->bus_id, 32); });
}
Result nvmlDeviceGetCudaComputeCapability(Device device, int* major, int* minor) {
  return About(device, [&](const State& gpu) {
    *major = gpu.major;
    *minor = gpu.minor;
    return kSuccess;
  });
}
Result nvmlDeviceGetComputeMode(Device device, int* mode) {
  return About(device, [&](const State& gpu) {
    *mode = gpu.mode;
    return kSuccess;
  });
}
Result nvmlDeviceGetMigMode(Device device, unsigned* current, unsigned* pending) {
  return About(device, [&](const State& gpu) {
    *current = *pending = static_cast<unsigned>(gpu.mig);
    return kSuccess;
  });
}
Result nvmlDeviceGetMemoryInfo_v2(Device device, Memory* memory) {
  if (memory->version != kMemoryVersion) return 25;  // NVML_ERROR_ARGUMENT_VERSION_MISMATCH
  return About(device, [&](const State& gpu) {
    *memory = {kMemoryVersion, gpu.total, gpu.reserved, gpu.total - gpu.reserved - gpu.used, gpu.used};
    return kSuccess;
  });
}
Result nvmlDeviceGetComputeRunningProcesses_v3(Device device, unsigned* count, ProcessInfo* processes) {
  return About(device, [&](const State& gpu) {
    const unsigned room = *count;
    *count = static_cast<unsigned>(gpu.processes.size());
    if (*count > room) return kInsufficientSize;
    std::copy(gpu.processes.begin(), gpu.processes.end(), processes);
    return kSuccess;
  });
}
Result nvmlDeviceGetTotalEccErrors(Device device, int type, int counter, unsigned long long* errors) {
  return About(device, [&](const State& gpu) {
    *errors = type == kUncorrected && counter == kVolatile ? gpu.ecc : 0;
    return kSuccess;
  });
}
Result nvmlEventSetCreate(EventSet* set) {
  *set = reinterpret_cast<EventSet>(new Events);
  return kSuccess;
}
Result nvmlEventSetFree(EventSet set) {
  delete EventsOf(set);
  return kSuccess;
}
Result nvmlDeviceRegisterEvents(Device device, unsigned long long types, EventSet set) {
  return About(device, [&](const State& gpu) {
    *EventsOf(set) = {device, gpu.xids.size()};
    return types == kXidCriticalError ? kSuccess : kNotSupported;
  });
}
Result nvmlEventSetWait_v2(EventSet set, EventData* event, unsigned timeout_ms) {
  Events& events = *EventsOf(set);
  const Machine machine = Read();
  const std::vector<int>& xids =
      machine.gpus[IndexOf(events.device)].xids;  // a lost device may have said why
  if (events.told >= xids.size()) return kTimeout;
  *event = {events.device, kXidCriticalError, static_cast<unsigned long long>(xids[events.told++]), 0, 0};
  return kSuccess;
}

}  // extern "C"
