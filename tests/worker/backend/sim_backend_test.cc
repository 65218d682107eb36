// The clocks of a simulated device: what a kernel and a hop take, and what of a hop is exposed.

#include <gtest/gtest.h>

#include "worker/backend/sim/profile.h"
#include "worker/comm/sim/sim_communicator.h"

namespace metp::testing {
namespace {

/// A round-figured device: kernels start in a millisecond, products run at 1000 FLOP/s and 100 B/s, the link
/// takes 2 s and a second for every 10 bytes.
v1::DeviceProfile Slow() {
  const auto profile = ParseProfile(
      "{name: slow, precision: fp32, memory_bytes: 100000, reserved_bytes: 0, workspace_bytes: 64,\n"
      " bytes_per_second: 100, kernel_seconds: 0.001, gemm: {flops_per_second: 1000},\n"
      " attention_forward: {flops_per_second: 500}, attention_backward: {flops_per_second: 250},\n"
      " link: {bytes_per_second: 10, latency_seconds: 2}, devices_per_node: 2,\n"
      " node_link: {bytes_per_second: 5, latency_seconds: 4}}",
      "slow");
  EXPECT_TRUE(profile.ok()) << profile.status();
  return *profile;
}

class SimTest : public ::testing::Test {
 protected:
  Tensor Make(int64_t rows, int64_t cols) {
    return backend_.Allocate(rows, cols, DType::kF32, MemoryCategory::kTransient);
  }
  MemoryLedger ledger_;
  sim::SimBackend backend_{Slow(), ledger_};
};

TEST_F(SimTest, KernelsAdvanceTheComputeClock) {
  const Tensor a = Make(3, 4), b = Make(4, 5), c = Make(3, 5);
  backend_.Gemm(1, a, Transpose::kNo, b, Transpose::kNo, 0, c);
  const double bytes = 4 * (12 + 20 + 15);
  EXPECT_DOUBLE_EQ(backend_.now(), 0.001 + 2 * 60 / 1000.0 + bytes / 100);
  const Event before = backend_.Record();
  backend_.Fill(c, 0);
  EXPECT_DOUBLE_EQ(backend_.Seconds(before, backend_.Record()), 0.001 + 60 / 100.0);
  backend_.Gemm(1, a, Transpose::kNo, b.view().Cols(0, 0), Transpose::kNo, 0,
                c.view().Cols(0, 0));  // nothing
  EXPECT_DOUBLE_EQ(backend_.Seconds(before, backend_.Record()), 0.001 + 60 / 100.0);
}

TEST_F(SimTest, MemoryIsCountedAndNeverTouched) {
  EXPECT_EQ(ledger_.current_total(), 64);
  const Tensor huge = Make(int64_t{1} << 20, int64_t{1} << 20);  // 4 TiB
  EXPECT_EQ(ledger_.current_total(), 64 + (int64_t{4} << 40));
  float value = 1;
  backend_.CopyToHost(huge.view().Block(7, 1, 7, 1), &value);
  EXPECT_EQ(value, 0);
}

TEST_F(SimTest, AHopRunsBesideComputeAndTheRestIsExposed) {
  sim::SimCommunicator ring(backend_, sim::RingLink(Slow(), 2), 0, 2);
  const Tensor out = Make(1, 5), in = Make(1, 5);
  const HopId hop = ring.Post({{out}, {in}}, backend_.Record());  // 2 + 20 / 10 s
  backend_.Advance(3);
  ASSERT_TRUE(ring.Await(hop).ok());
  EXPECT_DOUBLE_EQ(backend_.now(), 4);
  const HopId hidden = ring.Post({{out}, {in}}, backend_.Record());
  backend_.Advance(10);
  ASSERT_TRUE(ring.Await(hidden).ok());
  EXPECT_DOUBLE_EQ(backend_.now(), 14);
  const std::vector<HopRecord> records = ring.TakeRecords();
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].sent_bytes, 20);
  EXPECT_DOUBLE_EQ(records[0].communication, 4);
  EXPECT_DOUBLE_EQ(records[0].exposed, 1);
  EXPECT_DOUBLE_EQ(records[1].exposed, 0);
  EXPECT_DOUBLE_EQ(records[1].skew, 0);
}

TEST_F(SimTest, ARingBeyondANodeIsAsFastAsItsSlowestLink) {
  sim::SimCommunicator ring(backend_, sim::RingLink(Slow(), 3), 0, 3);
  const Tensor x = Make(1, 5);
  ASSERT_TRUE(ring.Await(ring.Post({{x}, {x}}, backend_.Record())).ok());
  EXPECT_DOUBLE_EQ(backend_.now(), 4 + 20 / 5.0);
  ASSERT_TRUE(ring.AllReduce(Make(1, 15)).ok());
  EXPECT_DOUBLE_EQ(backend_.now(), 8 + 4 * (4 + 20 / 5.0));
}

TEST_F(SimTest, TheHostsStreamsRunBesideEachOtherAndBehindWhatTheyAreToldTo) {
  HostLink& link = backend_.host_link();
  const Tensor x = Make(1, 100);
  const HostBlock g = link.Allocate(400, MemoryCategory::kOptimizer),
                  w = link.Allocate(400, MemoryCategory::kOptimizer);
  const double copy = 400.0 / 100, update = 100 * 28 / 200.0;  // two devices share the host
  const HostTask out = link.CopyOut(x, g, backend_.Record());
  const HostTask updated = link.AdamW({}, 100, g, w, w, w, nullptr, {out});
  const HostTask second = link.CopyOut(x, g, backend_.Record());
  const HostTask in = link.CopyIn(w, x, backend_.Record(), {updated});
  link.Await(second);
  EXPECT_DOUBLE_EQ(backend_.now(), 2 * copy);
  link.Await(in);
  EXPECT_DOUBLE_EQ(backend_.now(), copy + update + copy);
  const HostLinkTimes times = link.TakeTimes();
  EXPECT_DOUBLE_EQ(times.copying, 3 * copy);
  EXPECT_DOUBLE_EQ(times.updating, update);
  EXPECT_DOUBLE_EQ(times.exposed, copy + update + copy);
}

}  // namespace
}  // namespace metp::testing
