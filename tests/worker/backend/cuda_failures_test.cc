// What the CUDA backend does where a device is not as it should be: unfit, short of memory, broken. On the emulated device
// only, which can be made so.

#include <gmock/gmock.h>

#include <functional>

#include "tests/cuda_emulation/emulated_cublaslt.h"
#include "tests/cuda_emulation/engine.h"
#include "tests/worker/backend/host.h"
#include "worker/backend/cuda/cuda_backend.h"
#include "worker/backend/cuda/launch.h"

namespace metp::testing {
namespace {

using ::testing::HasSubstr;
using Code = absl::StatusCode;

constexpr int64_t kMib = 1 << 20;

/// What `calls` throws.
absl::Status Thrown(const std::function<void()>& calls) {
  try {
    calls();
  } catch (const StepError& error) {
    return error.status();
  }
  return absl::OkStatus();
}

class CudaFailures : public ::testing::Test {
 protected:
  void SetUp() override { emulation::Configure({}); }
  void TearDown() override { emulation::Configure({}); }

  std::unique_ptr<cuda::CudaBackend> Make() {
    return std::make_unique<cuda::CudaBackend>(cuda::CudaOptions{0, DType::kF32, 1}, ledger_);
  }
  /// Of so many bytes.
  static Tensor Allocate(Backend& backend, int64_t bytes) {
    return backend.Allocate(1, bytes / 4, DType::kF32, MemoryCategory::kTransient);
  }

  MemoryLedger ledger_;
};

TEST_F(CudaFailures, ADeviceThatIsUnfitIsRefused) {
  emulation::Configure({.major = 8, .minor = 6, .shared_bytes = 99 * 1024});
  absl::Status status = Thrown([&] { Make(); });
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_EQ(status.message(),
            "CUDA: emulated: compute capability 8.6 has 99 KiB of shared memory a block, 163 KiB needed: "
            "A100, H100, H200, B200");
  emulation::Configure({.major = 7, .minor = 5, .shared_bytes = 64 * 1024});
  status = Thrown([&] { Make(); });
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("compute capability 7.5, 8.0 or newer needed"));
  emulation::Configure({.major = 9, .shared_bytes = 227 * 1024});
  EXPECT_TRUE(Thrown([&] { Make(); }).ok());
  EXPECT_EQ(ledger_.current_total(), 0);
}

TEST_F(CudaFailures, AnAllocationThatThrowsLeavesTheLedgers) {
  const auto backend = Make();
  const int64_t before = ledger_.current_total();
  emulation::BreakDevice(cudaErrorECCUncorrectable);
  EXPECT_EQ(Thrown([&] { Allocate(*backend, kMib); }).code(), Code::kInternal);
  EXPECT_EQ(ledger_.current_total(), before);
  HostLink& link = backend->host_link();
  EXPECT_EQ(Thrown([&] { link.Allocate(kMib, MemoryCategory::kOptimizer); }).code(), Code::kInternal);
  EXPECT_EQ(link.ledger().current_total(), 0);
  emulation::BreakDevice(cudaSuccess);
}

TEST_F(CudaFailures, MemoryThatIsFreeInPiecesIsGivenOutAfterAll) {
  emulation::Configure({.memory_bytes = 64 << 20, .fragments = true});
  const auto backend = Make();
  const int64_t left = 64 * kMib - backend->reserved_bytes();
  ASSERT_GE(left, 20 * kMib);
  Tensor x = Allocate(*backend, left - 8 * kMib);
  backend->Fill(x, 1);
  x.Reset();
  x = Allocate(*backend, left - 4 * kMib);
  backend->Fill(x, 2);
  const int64_t before = ledger_.current_total();
  EXPECT_EQ(Thrown([&] { Allocate(*backend, 8 * kMib); }).code(), Code::kResourceExhausted);
  EXPECT_EQ(ledger_.current_total(), before);
  backend->Synchronize();
}

TEST_F(CudaFailures, LockedBlocksThatAreKeptGoWhenThereAreNoneLeft) {
  emulation::Configure({.pinned_bytes = 10 << 20});
  const auto backend = Make();
  HostLink& link = backend->host_link();
  const Tensor x = Allocate(*backend, 3 * kMib);
  backend->Fill(x, 1);
  for (int64_t mib : {3, 6}) {
    const HostBlock block = link.Allocate(mib * kMib, MemoryCategory::kOptimizer);
    link.Await(link.CopyOut(x, block, backend->Record()));
  }
  const HostBlock large = link.Allocate(9 * kMib, MemoryCategory::kOptimizer);
  EXPECT_EQ(Thrown([&] { link.Allocate(2 * kMib, MemoryCategory::kOptimizer); }).code(),
            Code::kResourceExhausted);
  EXPECT_EQ(link.ledger().current_total(), 9 * kMib);
  backend->Synchronize();
}

class CudaProductFailures : public CudaFailures {
 protected:
  void TearDown() override {
    emulation::BreakCublasLt(CUBLAS_STATUS_SUCCESS);
    emulation::SpoilHeuristic(0);
    CudaFailures::TearDown();
  }
  /// A product of a shape that nobody has asked for; the sum of one element's terms.
  absl::Status Multiply(float& result) {
    const auto backend = Make();
    const Device a(*backend, Host(2, 3, 1), DType::kF32), b(*backend, Host(3, 4, 2), DType::kF32),
        c(*backend, Host(2, 4, 0), DType::kF32);
    return Thrown([&] {
      backend->Gemm(1, a, Transpose::kNo, b, Transpose::kNo, 0, c);
      result = static_cast<float>(c.Get().values[0]);
    });
  }
};

TEST_F(CudaProductFailures, SayWhoseTheyAre) {
  const std::pair<cublasStatus_t, Code> kCases[] = {
      {CUBLAS_STATUS_ALLOC_FAILED, Code::kResourceExhausted},
      {CUBLAS_STATUS_ARCH_MISMATCH, Code::kFailedPrecondition},
      {CUBLAS_STATUS_NOT_INITIALIZED, Code::kFailedPrecondition},
      {CUBLAS_STATUS_EXECUTION_FAILED, Code::kInternal},
  };
  for (const auto& [broken, code] : kCases) {
    emulation::BreakCublasLt(broken);
    float result = 0;
    const absl::Status status = Multiply(result);
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(cublasLtGetStatusName(broken)));
    if (code == Code::kFailedPrecondition) {
      EXPECT_THAT(std::string(status.message()), HasSubstr("compare their versions"));
    }
  }
}

TEST_F(CudaProductFailures, OnlyWhatTheHeuristicVouchesForIsTaken) {
  emulation::SpoilHeuristic(7);
  float result = 0;
  EXPECT_TRUE(Multiply(result).ok());
  EXPECT_EQ(result, 6);
  emulation::SpoilHeuristic(8);
  const absl::Status status = Multiply(result);
  EXPECT_EQ(status.code(), Code::kInternal) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("has no way to multiply 2 x 3 by 4"));
}

template <typename T>
__global__ void NothingKernel(T) {}

TEST_F(CudaFailures, ALaunchThatIsRefusedNamesItsKernel) {
  const auto launch = [](unsigned threads, size_t shared_bytes) {
    return Thrown(
        [&] { cuda::Launch(nullptr, dim3(1), dim3(threads), shared_bytes, NothingKernel<float>, 1.0f); });
  };
  EXPECT_TRUE(launch(32, 0).ok());
  EXPECT_EQ(launch(2048, 0),
            absl::InternalError("CUDA: cudaErrorInvalidConfiguration (invalid configuration argument) from "
                                "kernel NothingKernel<float>"));
  EXPECT_EQ(
      launch(32, 200 * 1024),
      absl::InternalError("CUDA: cudaErrorInvalidValue (invalid argument) from kernel NothingKernel<float>"));
  (void)cudaGetLastError();
}

}  // namespace
}  // namespace metp::testing
