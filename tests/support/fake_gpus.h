#pragma once

// GPUs that a test makes up, for the library that answers like NVIDIA's (tests/worker/telemetry/fake_nvml.cc): it reads
// them from a file at each call, so that they change when the test says so. One at a time in a process.

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/temp_folder.h"

namespace metp::testing {

struct FakeGpu {
  std::string uuid = "GPU-11111111-aaaa-bbbb-cccc-000000000000";
  std::string name = "NVIDIA H200";
  int64_t total_mib = 143771, reserved_mib = 600, used_mib = 4;
  std::vector<std::pair<int, int64_t>> processes = {};  // pid and MiB; -1: not told
  int major = 9, minor = 0;
  int mode = 0;
  bool split = false;
  int64_t ecc_errors = 0;
  std::vector<int> xids = {};  // all that ever came
  int error = 0;               // what every call about it answers
};

class FakeGpus {
 public:
  FakeGpus() {
    setenv("METP_FAKE_NVML", path().c_str(), 1);
    Write();
  }
  ~FakeGpus() { unsetenv("METP_FAKE_NVML"); }

  static std::string library() { return std::string(METP_BINARY_DIR) + "/metp-fake-nvml.so"; }

  /// Makes the fields below what the library answers from now on.
  void Write() const {
    {
      std::ofstream file(path() + ".new");
      file << "driver " << driver << "\ncuda " << cuda << "\ninit " << init << "\n";
      for (const FakeGpu& gpu : gpus) WriteOne(file, gpu);
    }
    std::filesystem::rename(path() + ".new", path());
  }

  std::string driver = "580.95.05";
  int cuda = 13000;  // 0: it does not say
  int init = 0;      // what nvmlInit answers
  std::vector<FakeGpu> gpus = {FakeGpu()};

 private:
  static void WriteOne(std::ofstream& file, const FakeGpu& gpu) {
    file << "gpu " << gpu.uuid << " " << gpu.name << "\nmemory " << gpu.total_mib << " " << gpu.reserved_mib
         << " " << gpu.used_mib << "\ncapability " << gpu.major << " " << gpu.minor << "\nmode " << gpu.mode
         << "\nmig " << gpu.split << "\necc " << gpu.ecc_errors << "\nerror " << gpu.error << "\n";
    for (const auto& [pid, mib] : gpu.processes) file << "process " << pid << " " << mib << "\n";
    for (const int xid : gpu.xids) file << "xid " << xid << "\n";
  }
  std::string path() const { return folder_.path() + "/gpus"; }

  TempFolder folder_;
};

}  // namespace metp::testing
