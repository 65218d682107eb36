// Allocation and the ledger, copies between host and device, fill and casts.

#include <cstring>
#include <limits>

#include "tests/worker/backend/conformance.h"

namespace metp::testing {

TEST_P(BackendConformance, AnAllocationEntersAndLeavesTheLedger) {
  const int64_t before = ledger().current_total();
  const int64_t workspace_before = ledger().current()[static_cast<int>(MemoryCategory::kWorkspace)];
  {
    Tensor tensor = backend().Allocate(3, 5, DType::kF64, MemoryCategory::kRing, "slot");
    EXPECT_EQ(ledger().current_total(), before + 120);
    EXPECT_EQ(ledger().current()[static_cast<int>(MemoryCategory::kRing)], 120);
    EXPECT_EQ(ledger().tag_peak("slot"), 120);
    Tensor moved = std::move(tensor);
    EXPECT_EQ(ledger().current_total(), before + 120);
    tensor.Reset();  // holds nothing any more
    EXPECT_EQ(ledger().current_total(), before + 120);
    moved.Reset();
    EXPECT_EQ(ledger().current_total(), before);
  }
  EXPECT_EQ(ledger().current_total(), before);
  EXPECT_EQ(ledger().current()[static_cast<int>(MemoryCategory::kWorkspace)], workspace_before);
}

TEST_P(BackendConformance, AllocatingBeyondTheCapacityThrowsResourceExhausted) {
  int64_t own = 0;
  {
    MemoryLedger unlimited;
    auto probe = GetParam().make(unlimited);
    own = unlimited.current_total();
  }
  MemoryLedger small(own + 1000);
  auto backend = GetParam().make(small);
  Tensor fits = backend->Allocate(1, 250, DType::kF32, MemoryCategory::kWeights);
  try {
    Tensor tensor = backend->Allocate(1, 1, DType::kF32, MemoryCategory::kWeights);
    FAIL() << "one byte too many was given out";
  } catch (const StepError& error) {
    EXPECT_EQ(error.status().code(), absl::StatusCode::kResourceExhausted);
  }
  EXPECT_EQ(small.current_total(), own + 1000);
  fits.Reset();
  EXPECT_EQ(backend->Allocate(1, 250, DType::kF32, MemoryCategory::kWeights)->cols, 250);
}

TEST_P(BackendConformance, OperationsTakeNoMemoryBehindTheLedger) {
  const int64_t before = ledger().current_total();
  ledger().ResetPeaks();
  Host x = Random(300, 64, 1);
  const Device device = Activation(x);
  const int64_t held = ledger().current_total();
  const Device w = F32(Host(1, 64, 1)), dw = F32(Host(1, 64)), dx = F32(Host(300, 64));
  backend().NormBackward(Norm::kRmsNorm, device, w, 1e-5f, device, dx, dw, Matrix{});
  EXPECT_EQ(ledger().peak_total(), held + (64 + 64 + 300 * 64) * 4);
  EXPECT_GE(held, before);
}

TEST_P(BackendConformance, WhatIsFreedIsGivenOutAgain) {
  for (int round = 0; round < 3; ++round) {
    std::vector<Tensor> tensors;
    for (int64_t n : {1, 1000, 1 << 20, 3 << 20, 1000}) {
      tensors.push_back(backend().Allocate(1, n, DType::kF32, MemoryCategory::kTransient));
      backend().Fill(tensors.back(), static_cast<float>(n));
    }
    for (const Tensor& tensor : tensors) {
      std::vector<float> got(tensor->size());
      backend().CopyToHost(tensor, got.data());
      EXPECT_EQ(std::count(got.begin(), got.end(), static_cast<float>(tensor->cols)), tensor->cols);
    }
  }
}

TEST_P(BackendConformance, CopiesToAndFromHostKeepEveryBit) {
  for (auto [rows, cols] : OddShapes()) {
    const Host host = Random(rows, cols, 3);
    for (DType type : {DType::kF32, DType::kF64}) {
      const Device strided(backend(), host, type, 3);
      EXPECT_EQ(strided.Get().values, host.values);
      // Through a strided view: contiguous on the host's side.
      std::vector<char> bytes(strided.view().bytes()), back(strided.view().bytes());
      backend().CopyToHost(strided, bytes.data());
      const Device target(backend(), Host(rows, cols), type, 5);
      backend().CopyFromHost(bytes.data(), target);
      backend().CopyToHost(target, back.data());
      EXPECT_EQ(back, bytes);
      EXPECT_EQ(target.Get().values, host.values);
      EXPECT_TRUE(target.PaddingIntact());
    }
  }
}

TEST_P(BackendConformance, FillSetsEveryElementOfAView) {
  for (auto [rows, cols] : OddShapes()) {
    for (DType type : {DType::kF32, DType::kBF16, DType::kF64}) {
      for (int64_t pad : {0, 3}) {
        const Device x(backend(), Random(rows, cols, 5), type, pad);
        backend().Fill(x, -1.5f);
        ExpectNear(x, Host(rows, cols, -1.5), 0);
      }
    }
  }
  const Device x = F32(Host(2, 3));
  backend().Fill(x, -std::numeric_limits<float>::infinity());
  ExpectNear(x, Host(2, 3, -std::numeric_limits<double>::infinity()), 0);
}

TEST_P(BackendConformance, CopyCastsWhereTypesDiffer) {
  for (auto [rows, cols] : OddShapes()) {
    for (DType from : {DType::kF32, DType::kBF16}) {
      for (DType to : {DType::kF32, DType::kBF16}) {
        for (int64_t pad : {0, 3}) {
          Host expected = Random(rows, cols, 7);
          const Device source(backend(), expected, from, pad),
              target(backend(), Host(rows, cols), to, 2 * pad);
          backend().Copy(source, target);
          for (double& x : expected.values) x = Rounded(Rounded(x, from), to);
          ExpectNear(target, expected, 0);
        }
      }
    }
  }
}

}  // namespace metp::testing
