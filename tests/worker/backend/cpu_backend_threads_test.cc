// The CPU backend with a team of threads. Thread sanitizer cannot see how OpenMP's run time synchronises: not
// run under it.

#include <gtest/gtest.h>

#include <thread>

#include "tests/worker/backend/conformance.h"

namespace metp::testing {
namespace {

INSTANTIATE_TEST_SUITE_P(CpuThreeThreads, BackendConformance,
                         ::testing::Values(BackendUnderTest{
                             "Cpu", [](MemoryLedger& ledger) { return MakeCpuBackend(3, ledger); }}),
                         [](const auto& info) { return info.param.name; });

/// A product and a norm's gradient on a backend of `threads`, built and used on the calling thread.
std::vector<char> Work(int threads, int rounds) {
  MemoryLedger ledger;
  auto backend = MakeCpuBackend(threads, ledger);
  const Device a(*backend, Random(400, 150, 1), DType::kF32), b(*backend, Random(150, 130, 2), DType::kF32);
  const Device w(*backend, Host(1, 150, 1), DType::kF32), dw(*backend, Host(1, 150), DType::kF32);
  const Device c(*backend, Host(400, 130), DType::kF32), dx(*backend, Host(400, 150), DType::kF32);
  for (int round = 0; round < rounds; ++round) {
    backend->Gemm(1, a, Transpose::kNo, b, Transpose::kNo, 1, c);
    backend->NormBackward(Norm::kRmsNorm, a, w, 1e-5f, a, dx, dw, Matrix{});
  }
  std::vector<char> bytes = c.Bytes();
  for (const Device* result : {&dx, &dw}) {
    const std::vector<char> more = result->Bytes();
    bytes.insert(bytes.end(), more.begin(), more.end());
  }
  return bytes;
}

TEST(CpuBackendThreads, BackendsOfSeveralSizesWorkAtOnceWithoutChangingABit) {
  const std::vector<char> alone[] = {Work(1, 20), Work(2, 20), Work(3, 20)};
  std::vector<char> together[3];
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.emplace_back([rank, &result = together[rank]] { result = Work(1 + rank, 20); });
  }
  for (std::thread& rank : ranks) rank.join();
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(together[rank], alone[rank]) << 1 + rank << " threads";
}

TEST(CpuBackendThreads, ABackendMayMoveToAnotherThread) {
  MemoryLedger ledger;
  std::unique_ptr<Backend> backend;
  std::thread([&] { backend = MakeCpuBackend(3, ledger); }).join();
  const Device x(*backend, Random(300, 100, 3), DType::kF32), sums(*backend, Host(1, 100), DType::kF32);
  backend->AddColumnSums(x, sums);
  double expected = 0;
  for (int64_t i = 0; i < 300; ++i) expected += x.Get()(i, 40);
  EXPECT_NEAR(sums.Get()(0, 40), expected, 1e-4);
}

}  // namespace
}  // namespace metp::testing
