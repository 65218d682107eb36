#pragma once

// The overview's part about workers. Pure.

#include <string>
#include <vector>

#include "metp/v1/status.pb.h"

namespace metp {

struct Fleet {
  int all = 0, ready = 0, suspect = 0, lost = 0, drained = 0, busy = 0;
};
Fleet CountWorkers(const std::vector<v1::WorkerStatus>& workers);

/// `workers`: with the ranks they hold. `coordinator`: HOST:PORT that a new one dials.
std::string WorkersSection(const std::vector<v1::WorkerStatus>& workers, const std::string& coordinator);

/// "NVIDIA H200" of "NVIDIA H200 GPU-5f6b1a2c, driver 580.95.05".
std::string DeviceModel(const v1::WorkerStatus& worker);

}  // namespace metp
