// The CPU backend's host link: copies on streams of their own, in order, and what is held on the host counted.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "worker/backend/backend.h"

namespace metp {
namespace {

constexpr MemoryCategory kCategory = MemoryCategory::kOptimizer;

class HostLinkTest : public ::testing::Test {
 protected:
  Tensor Upload(const std::vector<float>& values) {
    Tensor x =
        backend_->Allocate(1, static_cast<int64_t>(values.size()), DType::kF32, MemoryCategory::kTransient);
    backend_->CopyFromHost(values.data(), x);
    return x;
  }
  MemoryLedger ledger_;
  std::unique_ptr<Backend> backend_ = MakeCpuBackend(1, ledger_);
  HostLink& link_ = backend_->host_link();
};

TEST_F(HostLinkTest, BringsBackWhatWasTakenOutWhateverTheOrderOfWaiting) {
  constexpr int kBlocks = 40;
  std::vector<Tensor> tensors;
  std::vector<HostBlock> blocks;
  std::vector<HostTask> out, in;
  for (int i = 0; i < kBlocks; ++i) {
    std::vector<float> values(1 + 1000 * i);
    std::iota(values.begin(), values.end(), static_cast<float>(i));
    tensors.push_back(Upload(values));
    blocks.push_back(link_.Allocate(tensors.back()->bytes(), kCategory));
    out.push_back(link_.CopyOut(tensors.back(), blocks.back(), backend_->Record()));
  }
  for (int i = kBlocks - 1; i >= 0; --i) link_.Await(out[i]);
  for (Tensor& tensor : tensors) backend_->Fill(tensor, -1);
  for (int i = 0; i < kBlocks; ++i) in.push_back(link_.CopyIn(blocks[i], tensors[i], backend_->Record()));
  for (int i = 0; i < kBlocks; ++i) {
    link_.Await(in[i]);
    link_.Await(in[i]);  // again does no harm
    std::vector<float> back(tensors[i]->size());
    backend_->CopyToHost(tensors[i], back.data());
    for (size_t k = 0; k < back.size(); ++k) ASSERT_EQ(back[k], static_cast<float>(i + k)) << "block " << i;
  }
  const HostLinkTimes times = link_.TakeTimes();
  EXPECT_GT(times.copying, 0);
  EXPECT_GE(times.exposed, 0);
  EXPECT_EQ(link_.TakeTimes().copying, 0);
}

TEST_F(HostLinkTest, UpdatesBehindTheCopyThatBringsTheGradientAndBeforeTheOneThatTakesTheWeights) {
  constexpr int64_t kElements = 50'000;
  std::vector<HostBlock> parts;
  for (int i = 0; i < 4; ++i) {
    parts.push_back(link_.Allocate(4 * kElements, kCategory));
    std::fill_n(static_cast<float*>(parts.back().data()), kElements, 0.0f);
  }
  const HostBlock narrow = link_.Allocate(2 * kElements, kCategory);
  AdamWStep step;
  step.learning_rate = step.correction1 = step.correction2 = 1;  // without memory: w -= g / (|g| + eps)
  step.eps = 1;
  const Tensor gradient = Upload(std::vector<float>(kElements, 3));
  const Tensor got = Upload(std::vector<float>(kElements, 0));
  HostTask last;
  for (int i = 0; i < 30; ++i) {
    const HostTask out = link_.CopyOut(gradient, parts[0], backend_->Record(), {last});
    const HostTask updated =
        link_.AdamW(step, kElements, parts[0], parts[1], parts[2], parts[3], &narrow, {out});
    last = link_.CopyIn(parts[3], got, backend_->Record(), {updated});
  }
  link_.Await(last);
  std::vector<float> values(kElements);
  backend_->CopyToHost(got, values.data());
  EXPECT_EQ(values, std::vector<float>(kElements, -22.5f));
  for (int64_t i = 0; i < kElements; ++i)
    ASSERT_EQ(static_cast<uint16_t*>(narrow.data())[i], 0xc1b4) << i;  // -22.5 as bf16
  EXPECT_GT(link_.TakeTimes().updating, 0);
}

TEST_F(HostLinkTest, NarrowWeightsAreRoundedToNearestTiesToEven) {
  const struct {
    uint32_t wide;
    uint16_t narrow;
  } kCases[] = {{0x3f800000, 0x3f80}, {0x3f807fff, 0x3f80}, {0x3f808000, 0x3f80},
                {0x3f808001, 0x3f81}, {0x3f818000, 0x3f82}, {0xbf818000, 0xbf82},
                {0x7f7fffff, 0x7f80}, {0x00000001, 0x0000}, {0x80000000, 0x8000}};
  const auto n = static_cast<int64_t>(std::size(kCases));
  std::vector<HostBlock> parts;
  for (int i = 0; i < 4; ++i) {
    parts.push_back(link_.Allocate(4 * (n + 1), kCategory));
    std::memset(parts.back().data(), 0, parts.back().bytes());
  }
  for (int64_t i = 0; i < n; ++i)
    std::memcpy(static_cast<uint32_t*>(parts[3].data()) + i, &kCases[i].wide, 4);
  static_cast<float*>(parts[3].data())[n] = std::nanf("");
  const HostBlock narrow = link_.Allocate(2 * (n + 1), kCategory);
  AdamWStep still;
  still.correction1 = still.correction2 = still.eps = 1;  // the learning rate is 0
  link_.Await(link_.AdamW(still, n + 1, parts[0], parts[1], parts[2], parts[3], &narrow, {}));
  const auto* got = static_cast<uint16_t*>(narrow.data());
  for (int64_t i = 0; i < n; ++i) EXPECT_EQ(got[i], kCases[i].narrow) << std::hex << kCases[i].wide;
  EXPECT_EQ(got[n] & 0x7f80, 0x7f80);
  EXPECT_NE(got[n] & 0x007f, 0) << "NaN became infinity";
}

TEST_F(HostLinkTest, CountsWhatIsHeldOnTheHostApartFromTheDevice) {
  const int64_t device = ledger_.current_total();
  {
    const HostBlock block = link_.Allocate(1000, kCategory), empty = link_.Allocate(0, kCategory);
    EXPECT_EQ(link_.ledger().current_total(), 1000);
    EXPECT_EQ(link_.ledger().current()[static_cast<int>(kCategory)], 1000);
    EXPECT_EQ(empty.data(), nullptr);
  }
  EXPECT_EQ(link_.ledger().current_total(), 0);
  EXPECT_EQ(link_.ledger().peak_total(), 1000);
  EXPECT_EQ(ledger_.current_total(), device);
}

}  // namespace
}  // namespace metp
