// The CUDA backend before the conformance suite, in fp32 and in bf16, and what is its own. Linked with the emulated device
// where there is no GPU, and into metp_gpu_tests for where there is one.

#include "worker/backend/cuda/cuda_backend.h"

#include <gmock/gmock.h>

#include "tests/worker/backend/conformance.h"

namespace metp::testing {
namespace {

using cuda::CudaBackend;

std::unique_ptr<Backend> Make(DType activation, MemoryLedger& ledger) {
  return std::make_unique<CudaBackend>(cuda::CudaOptions{0, activation, 1}, ledger);
}

INSTANTIATE_TEST_SUITE_P(
    Cuda, BackendConformance,
    ::testing::Values(
        BackendUnderTest{"Fp32", [](MemoryLedger& ledger) { return Make(DType::kF32, ledger); }},
        // One rounding to bf16 is 2^-9 of a result; sums of several rounded values come to a few of those.
        BackendUnderTest{"Bf16", [](MemoryLedger& ledger) { return Make(DType::kBF16, ledger); }, 1e-2}),
    [](const auto& info) { return info.param.name; });

TEST(CudaBackend, SaysWhatItRunsOn) {
  MemoryLedger ledger;
  EXPECT_THAT(Make(DType::kBF16, ledger)->Describe(), ::testing::MatchesRegex("cuda, .+, bf16"));
  EXPECT_THAT(Make(DType::kF32, ledger)->Describe(), ::testing::MatchesRegex("cuda, .+, fp32"));
}

TEST(CudaBackend, EntersItsWorkspaceOnceAndGivesItBack) {
  MemoryLedger ledger;
  {
    const auto backend = Make(DType::kBF16, ledger);
    EXPECT_GT(ledger.current_total(), cuda::kScratchFloats * 4);
    EXPECT_EQ(ledger.current()[static_cast<int>(MemoryCategory::kWorkspace)], ledger.current_total());
  }
  EXPECT_EQ(ledger.current_total(), 0);
}

TEST(CudaBackend, ADeviceThatIsNotThereIsRefused) {
  MemoryLedger ledger;
  try {
    CudaBackend backend({97, DType::kBF16, 1}, ledger);
    FAIL() << "started without a device";
  } catch (const StepError& error) {
    EXPECT_EQ(error.status().code(), absl::StatusCode::kInternal);
    EXPECT_THAT(std::string(error.status().message()), ::testing::HasSubstr("expected one numbered 97"));
  }
  EXPECT_EQ(ledger.current_total(), 0);
}

TEST(CudaBackend, MoreThanTheDeviceHasThrowsResourceExhaustedAndLeavesItUsable) {
  MemoryLedger ledger;
  const auto backend = Make(DType::kF32, ledger);
  const int64_t before = ledger.current_total();
  try {
    backend->Allocate(1 << 20, 1 << 24, DType::kF32, MemoryCategory::kTransient);
    FAIL() << "64 TiB were given out";
  } catch (const StepError& error) {
    EXPECT_EQ(error.status().code(), absl::StatusCode::kResourceExhausted);
  }
  EXPECT_EQ(ledger.current_total(), before);
  const Device x(*backend, Random(3, 5, 1), DType::kF32);
  backend->Fill(x, 2);
  EXPECT_EQ(x.Get().values, Host(3, 5, 2).values);
}

TEST(CudaBackend, CopiesOneRowWhateverItsStride) {
  MemoryLedger ledger;
  const auto backend = Make(DType::kF32, ledger);
  const Tensor x = backend->Allocate(1, 5, DType::kF32, MemoryCategory::kTransient);
  Matrix row = x;
  row.stride = int64_t{1} << 40;  // bytes that no copy in two dimensions takes
  const std::vector<float> values = {1, 2, 3, 4, 5};
  std::vector<float> back(5);
  backend->CopyFromHost(values.data(), row);
  backend->CopyToHost(row, back.data());
  EXPECT_EQ(back, values);
}

TEST(CudaBackend, ReportsWhatItsPoolHasReserved) {
  MemoryLedger ledger;
  CudaBackend backend({0, DType::kF32, 1}, ledger);
  {
    const Tensor large = backend.Allocate(1 << 12, 1 << 10, DType::kF32, MemoryCategory::kTransient);
    EXPECT_GE(backend.reserved_bytes(), ledger.current_total());
  }
  backend.Synchronize();
  EXPECT_GE(backend.reserved_bytes(), ledger.current_total()) << "what is freed is kept for the next";
}

TEST(CudaBackend, TimesOfPointsGoOnAcrossSynchronisations) {
  MemoryLedger ledger;
  CudaBackend backend({0, DType::kF32, 1}, ledger);
  const Tensor x = backend.Allocate(1 << 10, 1 << 10, DType::kF32, MemoryCategory::kTransient);
  double last = 0;
  for (int round = 0; round < 3; ++round) {
    const Event start = backend.Record();
    backend.Fill(x, 1);
    const Event end = backend.Record();
    backend.Synchronize();
    const Event later = backend.Record();
    backend.Fill(x, 2);
    const Event done = backend.Record();
    backend.Synchronize();
    EXPECT_GT(backend.Seconds(start, end), 0);
    EXPECT_GE(backend.Seconds(later, done), 0);
    EXPECT_GE(backend.TimeOf(done), last);
    last = backend.TimeOf(done);
  }
}

TEST(CudaBackend, ShapesThatDoNotAgreeEndTheProcess) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(
      {
        MemoryLedger ledger;
        const auto backend = Make(DType::kF32, ledger);
        const Tensor a = backend->Allocate(2, 3, DType::kF32, MemoryCategory::kTransient);
        backend->Gemm(1, a, Transpose::kNo, a, Transpose::kNo, 0, a);
      },
      "Gemm expects");
}

TEST(CudaBackend, AHeadThatIsTooWideForFusedAttentionEndsTheProcess) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  for (DType activation : {DType::kF32, DType::kBF16}) {
    const auto attend = [&](bool backward) {
      constexpr int kWide = 257;
      MemoryLedger ledger;
      const auto backend = Make(activation, ledger);
      const auto make = [&](DType type, int64_t cols) {
        return backend->Allocate(1, cols, type, MemoryCategory::kTransient);
      };
      const Tensor x = make(activation, kWide), sums = make(DType::kF32, kWide),
                   column = make(DType::kF32, 1), visible = make(DType::kI32, 2);
      AttentionBlock block;
      block.q = block.k = block.v = x;
      block.visible = visible;
      block.heads = block.kv_heads = 1;
      block.head_dim = kWide;
      if (backward) {
        backend->AttentionBackward(block, x, {}, column, column, sums, sums, sums);
      } else {
        backend->AttentionForward(block, sums, column);
      }
    };
    for (bool backward : {false, true}) {
      EXPECT_DEATH(attend(backward), "fused attention on CUDA expects a head_dim of at most 256");
    }
  }
}

TEST(CudaBackend, IdsInAnElementwiseOperationEndTheProcess) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(
      {
        MemoryLedger ledger;
        const auto backend = Make(DType::kF32, ledger);
        const Tensor ids = backend->Allocate(2, 3, DType::kI32, MemoryCategory::kTransient);
        backend->Fill(ids, 0);
      },
      "expect float types");
}

}  // namespace
}  // namespace metp::testing
