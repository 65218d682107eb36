// The graphs of attention before cuDNN itself, for devices that are described and need not be there: cuDNN looks for its
// ways to run a graph on them, down to a compiler for its kernels. That it computes what it should is shown on a real
// device (cuda_library_attention_test.cc).

#include <dlfcn.h>
#include <gmock/gmock.h>

#include "worker/backend/cuda/cudnn_graphs.h"

namespace metp::cuda {
namespace {

struct DeviceCase {
  const char* name;
  int version, multiprocessors, shared_bytes;  // 900: compute capability 9.0
};
const DeviceCase kA100{"NVIDIA A100", 800, 108, 166912}, kH200{"NVIDIA H200", 900, 132, 232448},
    kB200{"NVIDIA B200", 1000, 148, 232448};

std::shared_ptr<const cudnn_frontend::DeviceProperties> Properties(const DeviceCase& device) {
  const std::string json =
      R"({"deviceName": ")" + std::string(device.name) + R"(", "deviceVer": )" +
      std::to_string(device.version) + R"(, "driverVer": 13000, "multiProcessorCount": )" +
      std::to_string(device.multiprocessors) + R"(, "maxSharedMemoryPerBlockOptin": )" +
      std::to_string(device.shared_bytes) +
      R"(, "maxSharedMemoryPerBlock": 49152, "reservedSharedMemoryPerBlock": 1024, "totalGlobalMem": 80000000000,
          "maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64], "regsPerBlock": 65536,
          "smClockRateKHz": 1700000, "memClockRateKHz": 2600000, "l2CacheSize": 50000000, "warpSize": 32,
          "maxRegistersPerSM": 65536, "pciDeviceId": 0, "maxCtasPerSM": 32, "maxThreadsPerBlock": 1024,
          "maxThreadsPerSM": 2048, "isTccDriver": 0, "supportCoopLaunch": 1, "cudaDeviceId": 0})";
  auto properties = std::make_shared<cudnn_frontend::DeviceProperties>();
  cudnn_frontend::error_t error = properties->deserialize({json.begin(), json.end()});
  EXPECT_TRUE(error.is_good()) << error.get_message();
  return properties;
}

using Describer = void (*)(const FusedBlock&, cudnn_frontend::graph::Graph&);

absl::Status FindWaysOn(const DeviceCase& device, Describer describe, const FusedBlock& block) {
  cudnn_frontend::graph::Graph graph;
  graph.set_device_properties(Properties(device))
      .set_sm_version(device.version / 10)
      .set_sm_count(device.multiprocessors);
  describe(block, graph);
  return FindWays(graph, nullptr);
}

/// As a ring has it: K and V side by side.
FusedBlock Block(int64_t nq, int64_t nk, int heads, int kv_heads, int d, bool diagonal) {
  FusedBlock x{nq, nk, heads, kv_heads, d, diagonal, 0.125f};
  x.q_stride = x.d_o_stride = int64_t{heads} * d;
  x.k_stride = x.v_stride = 2 * int64_t{kv_heads} * d;
  x.o_stride = 4 * x.q_stride;  // one head group of several
  return x;
}

/// Opens what cuDNN will look for where the system does not have it: the toolkit's, a driver that is a stub.
void OpenToolkit() {
  const std::string folder = METP_CUDA_LIBRARY_DIR;
  const std::pair<const char*, std::string> libraries[] = {{"libcuda.so.1", "/stubs/libcuda.so"},
                                                           {"libcudart.so.13", "/libcudart.so.13"},
                                                           {"libnvrtc.so.13", "/libnvrtc.so.13"},
                                                           {"libcudnn.so.9", "/libcudnn.so.9"}};
  for (const auto& [name, file] : libraries) {
    if (dlopen(name, RTLD_NOW) == nullptr) dlopen((folder + file).c_str(), RTLD_NOW);
  }
}

class CudaCudnn : public ::testing::Test {
 protected:
  void SetUp() override {
    OpenToolkit();
    if (const absl::Status loaded = LoadCudnn(); !loaded.ok()) GTEST_SKIP() << loaded.message();
  }
};

TEST_F(CudaCudnn, TakesWholeAndDiagonalBlocksOnEveryDevice) {
  for (const DeviceCase& device : {kA100, kH200, kB200}) {
    for (const FusedBlock& x : {Block(8192, 8192, 8, 2, 128, true), Block(1000, 777, 8, 2, 128, false),
                                Block(777, 777, 4, 4, 64, true), Block(1000, 777, 6, 3, 80, false)}) {
      SCOPED_TRACE(::testing::Message()
                   << device.name << ", " << x.nq << " x " << x.nk << ", heads of " << x.head_dim);
      EXPECT_EQ(FindWaysOn(device, DescribeForward, x), absl::OkStatus());
      EXPECT_EQ(FindWaysOn(device, DescribeBackward, x), absl::OkStatus());
    }
  }
}

TEST_F(CudaCudnn, SaysWhatItDoesNotTake) {
  EXPECT_EQ(FindWaysOn(kH200, DescribeBackward, Block(512, 512, 2, 2, 256, true)), absl::OkStatus());
  const absl::Status wide = FindWaysOn(kA100, DescribeBackward, Block(512, 512, 2, 2, 256, true));
  EXPECT_EQ(wide.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(wide.message()), ::testing::HasSubstr("128"));
  EXPECT_FALSE(FindWaysOn(kH200, DescribeForward, Block(512, 512, 2, 2, 12, true)).ok());
}

}  // namespace
}  // namespace metp::cuda
