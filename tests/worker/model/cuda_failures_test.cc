// A training step on a device that breaks in the middle of it. On the emulated device only, which can be made to.

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "tests/cuda_emulation/engine.h"
#include "tests/support/golden.h"
#include "worker/backend/cuda/cuda_backend.h"
#include "worker/comm/device/device_communicators.h"

namespace metp::testing {
namespace {

/// A communicator at whose hop number `last` the device breaks; 0: none.
class Breaking final : public Communicator {
 public:
  Breaking(std::unique_ptr<Communicator> of, HopId last) : of_(std::move(of)), last_(last) {}
  int rank() const override { return of_->rank(); }
  int size() const override { return of_->size(); }
  HopId Post(Exchange exchange, const Event& after) override {
    posted_ = of_->Post(std::move(exchange), after);
    if (posted_ == last_) emulation::BreakDevice(cudaErrorECCUncorrectable);
    return posted_;
  }
  absl::Status Await(HopId hop) override { return of_->Await(hop); }
  absl::Status AllReduce(const Matrix& values) override { return of_->AllReduce(values); }
  absl::Status Barrier() override { return of_->Barrier(); }
  void Abort(absl::Status reason) override { of_->Abort(std::move(reason)); }
  std::vector<HopRecord> TakeRecords() override { return of_->TakeRecords(); }
  HopId posted() const { return posted_; }

 private:
  const std::unique_ptr<Communicator> of_;
  const HopId last_;
  HopId posted_ = 0;
};

/// A step of two ranks on one device; the hops that rank 0 posted. `failed`: what each rank's step threw.
HopId Step(const Golden& golden, HopId last, std::vector<absl::Status>& failed) {
  constexpr int kRanks = 2;
  MemoryLedger ledgers[kRanks];
  std::unique_ptr<cuda::CudaBackend> backends[kRanks];
  std::vector<cuda::CudaBackend*> all;
  for (int rank = 0; rank < kRanks; ++rank) {
    backends[rank] = std::make_unique<cuda::CudaBackend>(cuda::CudaOptions{0, DType::kF32, 1}, ledgers[rank]);
    all.push_back(backends[rank].get());
  }
  auto ring = MakeLocalDeviceCommunicators(all);
  EXPECT_TRUE(ring.ok()) << ring.status();
  Cut cut{kRanks, 2, 0, true, Recompute::kNone, true};
  failed.assign(kRanks, absl::OkStatus());
  HopId posted = 0;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      Breaking communicator(std::move((*ring)[rank]), rank == 0 ? last : 0);
      try {
        GoldenRank model(golden, cut, *backends[rank], communicator);
        model.Gradients(false);
      } catch (const StepError& error) {
        failed[rank] = error.status();
        communicator.Abort(error.status());
      }
      if (rank == 0) posted = communicator.posted();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return posted;
}

TEST(CudaStepFailures, ADeviceThatBreaksWhileActivationsAreOnTheHostFailsTheStep) {
  const Golden golden = Golden::Load("gpt2");
  std::vector<absl::Status> failed;
  const HopId hops = Step(golden, 0, failed);
  for (const absl::Status& status : failed) ASSERT_TRUE(status.ok()) << status;
  ASSERT_GT(hops, 10u);
  for (HopId last = 2; last < hops; last += hops / 8) {
    SCOPED_TRACE(::testing::Message() << "hop " << last << " of " << hops);
    Step(golden, last, failed);
    EXPECT_EQ(failed[0].code(), absl::StatusCode::kInternal) << failed[0];
    EXPECT_FALSE(failed[1].ok());
    emulation::Configure({});
    emulation::
        TakeFaults();  // no wait holds on a broken device, but the emulated one does what it was given before
  }
}

}  // namespace
}  // namespace metp::testing
