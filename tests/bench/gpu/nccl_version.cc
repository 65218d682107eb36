#include <nccl.h>

#include "absl/strings/str_format.h"
#include "tests/bench/gpu/device.h"

namespace metp::gpu_bench {

std::string NcclVersion() {
  int version = 0;
  if (ncclGetVersion(&version) != ncclSuccess) return "unknown";
  return absl::StrFormat("%d.%d.%d", version / 10000, version % 10000 / 100, version % 100);
}

}  // namespace metp::gpu_bench
