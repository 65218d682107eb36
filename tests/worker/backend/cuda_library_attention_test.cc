// Attention by a library in the place of the own kernels: the same results, and who gets which block. Linked with an
// emulated library, and into metp_gpu_tests with cuDNN.

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "tests/worker/backend/host.h"
#include "tests/worker/backend/watched_library.h"
#include "worker/backend/cuda/cuda_backend.h"

namespace metp::testing {
namespace {

using cuda::CudaBackend;
using cuda::FusedBlock;
using cuda::LibraryUse;

/// A block and its results on one backend, all bf16 rows aligned to 16 bytes.
class Block {
 public:
  Block(CudaBackend& backend, int64_t nq, int64_t nk, int heads, int kv_heads, int d, BlockMask mask)
      : backend_(backend),
        wk_(int64_t{kv_heads} * d),
        d_q_start_(Random(nq, int64_t{heads} * d, 37)),
        d_kv_start_(Random(nk, 2 * wk_, 38)),
        q_(backend, Random(nq, heads * d, 31), DType::kBF16, 8),
        kv_(backend, Random(nk, 2 * wk_, 32), DType::kBF16, 8),
        d_o_(backend, Random(nq, heads * d, 33), DType::kBF16, 8),
        narrow_o_(backend, Host(nq, heads * d), DType::kBF16, 8),
        visible_(backend, Visible(nq, nk, mask), DType::kI32),
        o_(backend, Random(nq, heads * d, 35), DType::kF32, 4),
        lse_(backend, Random(nq, heads, 36), DType::kF32),
        delta_(backend, Host(nq, heads), DType::kF32),
        dq_(backend, d_q_start_, DType::kF32, 4),
        d_kv_(backend, d_kv_start_, DType::kF32, 4) {
    block_.q = q_;
    block_.k = kv_.view().Cols(0, wk_);
    block_.v = kv_.view().Cols(wk_, 2 * wk_);
    block_.visible = visible_;
    block_.mask = mask;
    block_.heads = heads;
    block_.kv_heads = kv_heads;
    block_.head_dim = d;
    block_.scale = static_cast<float>(1 / std::sqrt(d));
  }
  /// Merged into what was there.
  void Forward() { backend_.AttentionForward(block_, o_, lse_); }
  void Backward() {
    backend_.Copy(o_, narrow_o_);
    backend_.AttentionDelta(d_o_, narrow_o_, block_.head_dim, delta_);
    backend_.AttentionBackward(block_, d_o_, narrow_o_, lse_, delta_, dq_, d_kv_.view().Cols(0, wk_),
                               d_kv_.view().Cols(wk_, 2 * wk_));
  }
  /// Merged o and lse; what was added to the gradients.
  std::vector<Host> Results() {
    return {o_.Get(), lse_.Get(), Less(dq_.Get(), d_q_start_), Less(d_kv_.Get(), d_kv_start_)};
  }
  void SetMask(BlockMask mask) { block_.mask = mask; }

 private:
  static Host Visible(int64_t nq, int64_t nk, BlockMask mask) {
    Host visible(nq, 2);
    for (int64_t i = 0; i < nq; ++i)
      visible(i, 1) = static_cast<double>(mask == BlockMask::kNone ? nk : i + 1);
    return visible;
  }

  static Host Less(Host a, const Host& b) {
    for (size_t i = 0; i < a.values.size(); ++i) a.values[i] -= b.values[i];
    return a;
  }

  CudaBackend& backend_;
  const int64_t wk_;
  const Host d_q_start_, d_kv_start_;
  Device q_, kv_, d_o_, narrow_o_, visible_, o_, lse_, delta_, dq_, d_kv_;
  AttentionBlock block_;
};

double Distance(const Host& a, const Host& b) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < a.values.size(); ++i) {
    difference += (a.values[i] - b.values[i]) * (a.values[i] - b.values[i]);
    size += a.values[i] * a.values[i];
  }
  return std::sqrt(difference / size);
}

class CudaLibraryAttention : public ::testing::Test {
 protected:
  void SetUp() override {
    watch = {};
    MemoryLedger ledger;
    CudaBackend plain({0, DType::kBF16, 1}, ledger);
    const auto library = OpenLibraryUnderTest(plain.stream());
    if (!library.ok()) GTEST_SKIP() << "no library: " << library.status().message();
    library_ = (*library)->Describe();
  }
  std::unique_ptr<CudaBackend> Make(LibraryUse use, int64_t room_bytes = int64_t{32} << 20) {
    cuda::CudaOptions options{0, DType::kBF16, 1};
    options.fused_attention = OpenWatched;
    options.library_use = use;
    options.library_room_bytes = room_bytes;
    return std::make_unique<CudaBackend>(options, ledger_);
  }
  std::unique_ptr<CudaBackend> MakeOwn() {
    return std::make_unique<CudaBackend>(cuda::CudaOptions{0, DType::kBF16, 1}, ledger_);
  }
  MemoryLedger ledger_;
  std::string library_;
};

TEST_F(CudaLibraryAttention, IsWhatTheOwnKernelsMake) {
  struct Case {
    int64_t nq, nk;
    int heads, kv_heads, d;
    BlockMask mask;
  };
  for (const Case& c :
       {Case{130, 130, 4, 2, 64, BlockMask::kDiagonal}, Case{70, 200, 4, 1, 64, BlockMask::kNone},
        Case{64, 64, 2, 2, 128, BlockMask::kDiagonal}, Case{33, 17, 6, 3, 8, BlockMask::kNone}}) {
    SCOPED_TRACE(::testing::Message() << c.nq << " x " << c.nk << ", heads of " << c.d);
    watch.forward.clear();
    watch.backward.clear();
    const auto own = MakeOwn(), library = Make(LibraryUse::kAlways);
    std::vector<std::vector<Host>> results;
    for (CudaBackend* backend : {own.get(), library.get()}) {
      Block block(*backend, c.nq, c.nk, c.heads, c.kv_heads, c.d, c.mask);
      block.Forward();
      block.Backward();
      results.push_back(block.Results());
    }
    ASSERT_FALSE(watch.forward.empty());
    ASSERT_FALSE(watch.backward.empty());
    EXPECT_EQ(watch.forward.back().nq, c.nq);  // after the first rows, which were compared
    EXPECT_EQ(watch.backward.back().nq, c.nq);
    for (size_t i = 0; i < results[0].size(); ++i)
      EXPECT_LT(Distance(results[0][i], results[1][i]), 5e-3) << i;
  }
}

TEST_F(CudaLibraryAttention, BlocksAreCutByHeadsUntilTheyFit) {
  struct Case {
    int heads, kv_heads;
    int64_t room_bytes;
    int forward_heads, backward_heads;  // of a slice; fewer than a group's share its key head
  };
  for (const Case& c : {Case{8, 4, 192 << 10, 4, 2}, Case{2, 1, 128 << 10, 2, 1}}) {
    SCOPED_TRACE(::testing::Message() << c.heads << "/" << c.kv_heads << " heads");
    std::vector<std::vector<Host>> results;
    for (const bool cut : {false, true}) {
      watch = {};
      const auto backend = Make(LibraryUse::kAlways, cut ? c.room_bytes : 32 << 20);
      Block block(*backend, 2000, 2000, c.heads, c.kv_heads, 8, BlockMask::kDiagonal);
      block.Forward();
      block.Backward();
      results.push_back(block.Results());
      if (cut && library_ != kEmulatedLibrary) continue;  // whose workspace these rooms were made for
      ASSERT_GT(watch.forward.size(), 1u);
      ASSERT_GT(watch.backward.size(), 1u);
      EXPECT_EQ(watch.forward.back().heads, cut ? c.forward_heads : c.heads);
      EXPECT_EQ(watch.backward.back().heads, cut ? c.backward_heads : c.heads);
    }
    for (size_t i = 0; i < results[0].size(); ++i)
      EXPECT_LT(Distance(results[0][i], results[1][i]), 5e-3) << i;
  }
}

TEST_F(CudaLibraryAttention, WhatDoesNotFitIsTheOwnKernels) {
  const auto backend = Make(LibraryUse::kAlways, 64 << 10);
  Block block(*backend, 300, 300, 2, 2, 64, BlockMask::kDiagonal);
  block.Forward();
  block.Backward();
  EXPECT_TRUE(watch.forward.empty());
  EXPECT_TRUE(watch.backward.empty());
}

TEST_F(CudaLibraryAttention, TheSlowerIsNotGivenAShapeOnceBothWereTimed) {
  watch.sleep_ms = 100;
  const auto backend = Make(LibraryUse::kWhereFaster);
  Block block(*backend, 64, 64, 2, 2, 64, BlockMask::kNone);
  const auto blocks = [] {
    return std::count_if(watch.forward.begin(), watch.forward.end(),
                         [](const FusedBlock& x) { return x.heads == 2; });
  };
  for (int i = 0; i < 4; ++i) block.Forward();
  EXPECT_EQ(blocks(), 2);  // by turns
  for (int i = 0; i < 4; ++i) block.Forward();
  EXPECT_EQ(blocks(), 4);
  backend->Synchronize();
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 4; ++i) block.Forward();
  EXPECT_EQ(blocks(), 4);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), ::testing::HasSubstr("own kernels from here on"));
}

TEST_F(CudaLibraryAttention, NobodyWaitsForTheTimes) {
  watch.sleep_ms = 50;
  const auto backend = Make(LibraryUse::kWhereFaster);
  Block block(*backend, 64, 64, 2, 2, 64, BlockMask::kNone);
  block.Forward();  // compares, which waits
  const size_t compared = watch.forward.size();
  const Event start = backend->Record();
  for (int i = 0; i < 12; ++i) block.Forward();
  EXPECT_EQ(cudaEventQuery(cuda::Handle(backend->Record())), cudaErrorNotReady);
  EXPECT_EQ(watch.forward.size(),
            compared + 4);  // the decision is still open, and those blocks the own kernels'
  backend->Synchronize();
}

TEST_F(CudaLibraryAttention, ALibraryThatDisagreesIsNotUsed) {
  watch.scale = 1.5;
  const auto own = MakeOwn(), backend = Make(LibraryUse::kAlways);
  Block a(*own, 64, 64, 2, 2, 64, BlockMask::kDiagonal), b(*backend, 64, 64, 2, 2, 64, BlockMask::kDiagonal);
  ::testing::internal::CaptureStderr();
  for (Block* block : {&a, &b}) {
    block->Forward();
    block->Backward();
  }
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              ::testing::HasSubstr("disagrees with the own kernels"));
  EXPECT_EQ(watch.forward.size(), 1u);  // the comparison
  EXPECT_EQ(watch.backward.size(), 1u);
  const std::vector<Host> expected = a.Results(), found = b.Results();
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(found[i].values, expected[i].values) << i;
}

TEST_F(CudaLibraryAttention, MasksPerRowAndWhatTheLibraryDoesNotTakeAreTheOwnKernels) {
  const auto backend = Make(LibraryUse::kAlways);
  Block per_row(*backend, 40, 40, 2, 2, 64, BlockMask::kDiagonal);
  per_row.SetMask(BlockMask::kPerRow);
  Block ragged(*backend, 40, 40, 2, 2, 12, BlockMask::kDiagonal);
  Block wide(*backend, 40, 40, 1, 1, 256, BlockMask::kDiagonal);
  for (Block* block : {&per_row, &ragged}) {
    block->Forward();
    block->Backward();
  }
  EXPECT_TRUE(watch.forward.empty());
  EXPECT_TRUE(watch.backward.empty());
  wide.Forward();
  wide.Backward();
  if (library_ == kEmulatedLibrary) {  // a real one may take it
    EXPECT_TRUE(watch.forward.empty());
    EXPECT_TRUE(watch.backward.empty());
  }
}

TEST_F(CudaLibraryAttention, ItsRoomIsEnteredAndItsAbsenceSaid) {
  const int64_t before = ledger_.current_total();
  {
    const auto own = MakeOwn();
    const int64_t plain = ledger_.current_total() - before;
    const auto backend = Make(LibraryUse::kAlways, 4 << 20);
    EXPECT_EQ(ledger_.current_total() - before, 2 * plain + (4 << 20));
    EXPECT_THAT(backend->Describe(), ::testing::MatchesRegex("cuda, .+, bf16, .+"));
  }
  watch.has_library = false;
  ::testing::internal::CaptureStderr();
  const auto backend = Make(LibraryUse::kAlways);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), ::testing::HasSubstr("no library here"));
  EXPECT_THAT(backend->Describe(), ::testing::MatchesRegex("cuda, .+, bf16"));
}

}  // namespace
}  // namespace metp::testing
