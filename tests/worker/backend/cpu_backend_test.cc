// The CPU backend on one thread before the conformance suite, and what is its own: scratch, kept memory. No
// test here forms an OpenMP team, so that all of them run under thread sanitizer.

#include "worker/backend/cpu/cpu_backend.h"

#include <gmock/gmock.h>

#include <cmath>
#include <thread>

#include "tests/worker/backend/conformance.h"
#include "worker/backend/cpu/block_pool.h"

namespace metp::testing {
namespace {

INSTANTIATE_TEST_SUITE_P(CpuOneThread, BackendConformance,
                         ::testing::Values(BackendUnderTest{
                             "Cpu", [](MemoryLedger& ledger) { return MakeCpuBackend(1, ledger); }}),
                         [](const auto& info) { return info.param.name; });

TEST(CpuBackend, SaysWhatItRunsOn) {
  MemoryLedger ledger;
  EXPECT_THAT(MakeCpuBackend(2, ledger)->Describe(), ::testing::MatchesRegex("cpu, 2 threads, [a-z0-9_]+"));
  EXPECT_THAT(MakeCpuBackend(1, ledger)->Describe(), ::testing::StartsWith("cpu, 1 thread, "));
}

TEST(CpuBackend, EntersItsScratchOnceAndGivesItBack) {
  MemoryLedger ledger;
  {
    auto backend = MakeCpuBackend(3, ledger);
    EXPECT_EQ(ledger.current_total(), 3 * cpu::kScratchFloats * 4);
    EXPECT_EQ(ledger.current()[static_cast<int>(MemoryCategory::kWorkspace)], ledger.current_total());
  }
  EXPECT_EQ(ledger.current_total(), 0);
}

TEST(CpuBackend, DoesNotStartWhereItsScratchDoesNotFit) {
  MemoryLedger ledger(3 * cpu::kScratchFloats * 4 - 1);
  try {
    MakeCpuBackend(3, ledger);
    FAIL() << "started without its scratch";
  } catch (const StepError& error) {
    EXPECT_EQ(error.status().code(), absl::StatusCode::kResourceExhausted);
  }
  EXPECT_EQ(ledger.current_total(), 0);
}

TEST(CpuBackend, MemoryIsAlignedToCacheLines) {
  MemoryLedger ledger;
  auto backend = MakeCpuBackend(1, ledger);
  for (int64_t n : {1, 3, 1000, 1 << 20}) {
    Tensor tensor = backend->Allocate(1, n, DType::kF32, MemoryCategory::kTransient);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor->data) % 64, 0u);
  }
}

TEST(CpuBackend, SeveralBackendsWorkAtOnceEachOnItsThread) {
  constexpr int kRanks = 3;
  std::vector<Host> results(kRanks);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([rank, &result = results[rank]] {
      MemoryLedger ledger;
      auto backend = MakeCpuBackend(1, ledger);
      const Device a(*backend, Random(200, 150, rank), DType::kF32),
          b(*backend, Random(150, 130, 9), DType::kF32);
      const Device c(*backend, Host(200, 130), DType::kF32), x(*backend, Host(200, 150), DType::kF32);
      const Device w(*backend, Host(1, 150, 1), DType::kF32);
      for (int round = 0; round < 20; ++round) {
        backend->NormForward(Norm::kRmsNorm, a, w, Matrix{}, 1e-5f, x);
        backend->Gemm(1, x, Transpose::kNo, b, Transpose::kNo, 0, c);
      }
      result = c.Get();
    });
  }
  for (std::thread& rank : ranks) rank.join();
  for (int rank = 0; rank < kRanks; ++rank) {
    const Host a = Random(200, 150, rank), b = Random(150, 130, 9);
    double square = 0, expected = 0;
    for (int64_t l = 0; l < 150; ++l) square += a(7, l) * a(7, l) / 150;
    for (int64_t l = 0; l < 150; ++l) expected += a(7, l) / std::sqrt(square + 1e-5) * b(l, 11);
    EXPECT_NEAR(results[rank](7, 11), expected, 1e-4);
  }
}

TEST(CpuBackend, ShapesThatDoNotAgreeEndTheProcess) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(
      {
        MemoryLedger ledger;
        auto backend = MakeCpuBackend(1, ledger);
        Tensor a = backend->Allocate(2, 3, DType::kF32, MemoryCategory::kTransient);
        backend->Gemm(1, a, Transpose::kNo, a, Transpose::kNo, 0, a);
      },
      "Gemm expects");
}

TEST(BlockPool, GivesAFreedBlockToTheNextOfItsSize) {
  cpu::BlockPool pool;
  void* first = pool.Take(1000);
  pool.Give(first, 1000);
  EXPECT_EQ(pool.Take(1000), first);
  pool.Give(first, 1000);
}

TEST(BlockPool, KeepsNoMoreThanWasEverLive) {
  cpu::BlockPool pool;
  void* large = pool.Take(4 << 20);
  pool.Give(large, 4 << 20);
  EXPECT_EQ(pool.kept_bytes(), 4 << 20);
  // 4 MiB was the most ever live: with 3 MiB live beside it, the block kept must go.
  void* small = pool.Take(3 << 20);
  EXPECT_EQ(pool.kept_bytes(), 0);
  pool.Give(small, 3 << 20);
  EXPECT_EQ(pool.kept_bytes(), 3 << 20);
}

}  // namespace
}  // namespace metp::testing
