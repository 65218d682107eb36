// The CPU backend's host link: copies on streams of their own, in order, and what is held on the host counted.

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "worker/backend/backend.h"

namespace metp {
namespace {

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
  std::vector<CopyId> out, in;
  for (int i = 0; i < kBlocks; ++i) {
    std::vector<float> values(1 + 1000 * i);
    std::iota(values.begin(), values.end(), static_cast<float>(i));
    tensors.push_back(Upload(values));
    blocks.push_back(link_.Allocate(tensors.back()->bytes()));
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

TEST_F(HostLinkTest, CountsWhatIsHeldOnTheHostApartFromTheDevice) {
  const int64_t device = ledger_.current_total();
  {
    const HostBlock block = link_.Allocate(1000), empty = link_.Allocate(0);
    EXPECT_EQ(link_.ledger().current_total(), 1000);
    EXPECT_EQ(empty.data(), nullptr);
  }
  EXPECT_EQ(link_.ledger().current_total(), 0);
  EXPECT_EQ(link_.ledger().peak_total(), 1000);
  EXPECT_EQ(ledger_.current_total(), device);
}

}  // namespace
}  // namespace metp
