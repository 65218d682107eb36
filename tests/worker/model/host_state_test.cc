// Optimizer state on the host gives what it gives on the device, bit for bit, however it is cut into shards.

#include "worker/model/host_state.h"

#include <gtest/gtest.h>

#include <cmath>

namespace metp {
namespace {

class HostStateTest : public ::testing::TestWithParam<int64_t> {
 protected:
  Tensor Upload(const std::vector<float>& values) {
    Tensor x =
        backend_->Allocate(1, static_cast<int64_t>(values.size()), DType::kF32, MemoryCategory::kTransient);
    backend_->CopyFromHost(values.data(), x);
    return x;
  }
  std::vector<float> Download(const Matrix& x) {
    std::vector<float> values(x.size());
    backend_->CopyToHost(x, values.data());
    return values;
  }
  static std::vector<float> Wave(int64_t n, float phase) {
    std::vector<float> values(n);
    for (int64_t i = 0; i < n; ++i) values[i] = std::sin(static_cast<float>(i) * 0.7f + phase);
    return values;
  }
  MemoryLedger ledger_;
  std::unique_ptr<Backend> backend_ = MakeCpuBackend(1, ledger_);
};

TEST_P(HostStateTest, UpdatesAsTheDeviceDoes) {
  const int64_t n = GetParam();
  const std::vector<float> first = Wave(n, 0), nothing(n, 0);
  const Tensor w = Upload(first), m = Upload(nothing), v = Upload(nothing), weights = Upload(first);
  HostState state(*backend_, n, /*shard_elements=*/96);
  state.Import(HostState::Part::kMasters, first.data());
  for (int step = 1; step <= 5; ++step) {
    AdamWStep update;
    update.learning_rate = 0.01f;
    update.beta1 = 0.9f;
    update.beta2 = 0.95f;
    update.eps = 1e-8f;
    update.weight_decay = 0.1f;
    update.correction1 = static_cast<float>(1 - std::pow(0.9, step));
    update.correction2 = static_cast<float>(1 - std::pow(0.95, step));
    const Tensor g = Upload(Wave(n, static_cast<float>(step)));
    backend_->AdamW(update, g, m, v, w);
    state.Update(update, g, weights);
    EXPECT_EQ(Download(weights), Download(w)) << "step " << step;
  }
  std::vector<float> part(n);
  state.Export(HostState::Part::kMasters, part.data());
  EXPECT_EQ(part, Download(w));
  state.Export(HostState::Part::kFirstMoments, part.data());
  EXPECT_EQ(part, Download(m));
  state.Export(HostState::Part::kSecondMoments, part.data());
  EXPECT_EQ(part, Download(v));
}

TEST_P(HostStateTest, TakesThreeNumbersAnElementOnTheHostAndTwoShardsUnderWay) {
  const int64_t n = GetParam(), device = ledger_.current_total();
  const HostState state(*backend_, n, 96);
  const int64_t shards = (n + 95) / 96;
  EXPECT_EQ(backend_->host_link().ledger().current_total(),
            4 * (3 * n + std::min<int64_t>(shards, 2) * std::min<int64_t>(n, 96)));
  EXPECT_EQ(ledger_.current_total(), device);
}

INSTANTIATE_TEST_SUITE_P(Sizes, HostStateTest, ::testing::Values(0, 1, 95, 96, 97, 192, 1000),
                         ::testing::PrintToStringParamName());

}  // namespace
}  // namespace metp
