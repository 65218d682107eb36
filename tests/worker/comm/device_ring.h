#pragma once

// Rings on CUDA devices for tests, emulated or not: each rank has a backend and a thread of its own. Local rings share
// device 0, those over NCCL have a device a rank.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "worker/backend/cuda/cuda_backend.h"
#include "worker/comm/device/device_communicators.h"
#include "worker/rank/rendezvous.h"

namespace metp {

enum class Wire { kLocal, kNccl };

/// The program's: makes the devices ready for a test, and says how many there are. Emulated ones are whole again, and four.
int PrepareDevices();

/// Tests of every kind of ring and every size in turn, as far as there are devices.
class OnRing : public ::testing::TestWithParam<std::tuple<Wire, int>> {
 protected:
  void SetUp() override {
    const int devices = PrepareDevices(), wanted = wire() == Wire::kNccl ? size() : 1;
    if (devices < wanted) GTEST_SKIP() << "found " << devices << " devices, this needs " << wanted;
  }
  Wire wire() const { return std::get<0>(GetParam()); }
  int size() const { return std::get<1>(GetParam()); }
};

inline std::string RingName(const ::testing::TestParamInfo<std::tuple<Wire, int>>& info) {
  return (std::get<0>(info.param) == Wire::kLocal ? "LocalRingOf" : "NcclRingOf") +
         std::to_string(std::get<1>(info.param));
}

struct DeviceRank {
  MemoryLedger ledger;
  std::unique_ptr<cuda::CudaBackend> backend;
  std::unique_ptr<Communicator> communicator;  // goes before the backend

  explicit DeviceRank(int device) {
    backend = std::make_unique<cuda::CudaBackend>(
        cuda::CudaOptions{.device = device, .activation = DType::kF32}, ledger);
  }
  Tensor ToDevice(const std::vector<float>& values) {
    const int64_t n = values.size();
    Tensor tensor = backend->Allocate(1, n, DType::kF32, MemoryCategory::kTransient);
    backend->CopyFromHost(values.data(), tensor);
    return tensor;
  }
  std::vector<float> ToHost(const Matrix& values) {
    std::vector<float> host(values.size());
    backend->CopyToHost(values, host.data());
    return host;
  }
  absl::Status Move(const std::vector<Matrix>& sends, const std::vector<Matrix>& receives) {
    return communicator->Await(communicator->Post({sends, receives}, backend->Record()));
  }
};

/// Runs `body` on every rank of a ring, each in a thread of its own, in which the rank is also destroyed.
inline void RunRing(Wire wire, int size, const std::function<void(DeviceRank&)>& body,
                    CommunicatorOptions options = {std::chrono::seconds(60)}) {
  std::vector<std::unique_ptr<DeviceRank>> ranks(size);
  if (wire == Wire::kLocal) {
    std::vector<cuda::CudaBackend*> backends;
    for (auto& rank : ranks) {
      rank = std::make_unique<DeviceRank>(0);
      backends.push_back(rank->backend.get());
    }
    auto ring = MakeLocalDeviceCommunicators(backends, options);
    ASSERT_TRUE(ring.ok()) << ring.status();
    for (int rank = 0; rank < size; ++rank) ranks[rank]->communicator = std::move((*ring)[rank]);
  }
  LocalRendezvous rendezvous;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      std::unique_ptr<DeviceRank>& mine = ranks[rank];
      if (wire == Wire::kNccl) {
        mine = std::make_unique<DeviceRank>(rank);
        auto made = MakeNcclCommunicator(*mine->backend, rank, size, rendezvous, options);
        ASSERT_TRUE(made.ok()) << made.status();
        mine->communicator = *std::move(made);
      }
      body(*mine);
      mine.reset();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace metp
