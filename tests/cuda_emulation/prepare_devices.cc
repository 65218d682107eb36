// For suites of rings that run on real devices too (tests/worker/comm/device_ring.h).

#include "tests/cuda_emulation/engine.h"
#include "tests/worker/comm/device_ring.h"

namespace metp {

int PrepareDevices() {
  constexpr int kDevices = 4;
  emulation::Configure({.devices = kDevices});
  return kDevices;
}

}  // namespace metp
