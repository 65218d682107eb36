// The CUDA module of a rank over the emulated device.

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "tests/worker/comm/device_ring.h"
#include "worker/rank/cuda_module.h"

namespace metp {
namespace {

/// Of the environment; "" where it is not set.
std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

TEST(CudaModule, SetsWhatTheRuntimeReadsUnlessTheUserHas) {
  PrepareDevices();
  const auto open = [] {
    absl::Status error;
    const std::unique_ptr<RankDevice> device(metp_cuda_module_open({}, error));
    EXPECT_NE(device, nullptr) << error;
  };
  unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
  unsetenv("CUDA_MODULE_LOADING");
  open();
  EXPECT_EQ(Variable("CUDA_DEVICE_MAX_CONNECTIONS"), "32");
  EXPECT_EQ(Variable("CUDA_MODULE_LOADING"), "EAGER");
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "7", 1);
  setenv("CUDA_MODULE_LOADING", "LAZY", 1);
  open();
  EXPECT_EQ(Variable("CUDA_DEVICE_MAX_CONNECTIONS"), "7");
  EXPECT_EQ(Variable("CUDA_MODULE_LOADING"), "LAZY");
}

TEST(CudaModule, RefusesAWordThatItDoesNotKnowForCudnn) {
  PrepareDevices();
  for (const char* word : {"auto", "always", "never", "sometimes"}) {
    setenv(kAttentionLibraryVariable, word, 1);
    absl::Status error;
    const std::unique_ptr<RankDevice> device(metp_cuda_module_open({}, error));
    EXPECT_EQ(device == nullptr, std::string(word) == "sometimes") << error;
    if (device == nullptr) {
      EXPECT_EQ(error,
                absl::InvalidArgumentError("METP_CUDNN is 'sometimes'; expected auto, always or never"));
    }
  }
  unsetenv(kAttentionLibraryVariable);
}

}  // namespace
}  // namespace metp
