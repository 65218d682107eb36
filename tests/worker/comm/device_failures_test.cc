// How rings on CUDA devices end, and what they refuse to begin with. On the emulated device only.

#include <gmock/gmock.h>

#include <barrier>
#include <future>

#include "tests/cuda_emulation/emulated_nccl.h"
#include "tests/worker/comm/device_ring.h"
#include "worker/comm/nccl/nccl_peers.h"

namespace metp {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using Code = absl::StatusCode;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

/// Something that happens once; the other ranks wait for it.
class Moment {
 public:
  void Happens() { promise_.set_value(); }
  void Await() { future_.wait(); }

 private:
  std::promise<void> promise_;
  std::shared_future<void> future_ = promise_.get_future().share();
};

class CudaRingFailures : public OnRing {};
INSTANTIATE_TEST_SUITE_P(All, CudaRingFailures,
                         testing::Combine(testing::Values(Wire::kLocal, Wire::kNccl), testing::Values(2, 3)),
                         RingName);

/// One hop, and the first failure that it or a barrier behind it shows: on NCCL Await does not wait for the neighbours.
absl::Status HopAndBarrier(DeviceRank& rank) {
  const Tensor out = rank.ToDevice(std::vector<float>(100, 1)),
               in = rank.ToDevice(std::vector<float>(100, 2));
  const absl::Status status = rank.Move({out}, {in});
  return status.ok() ? rank.communicator->Barrier() : status;
}

TEST_P(CudaRingFailures, ADeadlineNamesTheHopAndTheNeighbours) {
  Moment over;
  RunRing(wire(), size(),
          [&](DeviceRank& rank) {
            if (rank.communicator->rank() != 0) return over.Await();
            const steady_clock::time_point start = steady_clock::now();
            const absl::Status status = HopAndBarrier(rank);
            EXPECT_GE(steady_clock::now() - start, milliseconds(400));
            EXPECT_EQ(status.code(), Code::kDeadlineExceeded) << status;
            EXPECT_THAT(std::string(status.message()), HasSubstr("hop 1: rank 0"));
            EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1"));
            EXPECT_EQ(rank.communicator->Barrier(), status);
            over.Happens();
          },
          {milliseconds(400)});
}

TEST_P(CudaRingFailures, ADeadlineEndsACollective) {
  Moment over;
  RunRing(wire(), size(),
          [&](DeviceRank& rank) {
            if (rank.communicator->rank() != 0) return over.Await();
            const Tensor values = rank.ToDevice({1, 2, 3});
            const absl::Status status = rank.communicator->AllReduce(values);
            EXPECT_EQ(status.code(), Code::kDeadlineExceeded) << status;
            EXPECT_THAT(std::string(status.message()), HasSubstr("all-reduce"));
            over.Happens();
          },
          {milliseconds(400)});
}

TEST_P(CudaRingFailures, AbortFromAnotherThreadIsTheResultOfEveryCall) {
  Moment over;
  RunRing(wire(), size(), [&](DeviceRank& rank) {
    if (rank.communicator->rank() != 0) return over.Await();
    std::thread other([&] {
      std::this_thread::sleep_for(milliseconds(30));
      rank.communicator->Abort(absl::CancelledError("the operator said so"));
      rank.communicator->Abort(absl::InternalError("second"));
    });
    const absl::Status reason = absl::CancelledError("the operator said so");
    EXPECT_EQ(HopAndBarrier(rank), reason);
    other.join();
    EXPECT_EQ(HopAndBarrier(rank), reason);
    EXPECT_EQ(rank.communicator->Barrier(), reason);
    EXPECT_EQ(rank.communicator->AllReduce(rank.ToDevice({1})), reason);
    EXPECT_THAT(rank.communicator->TakeRecords(), IsEmpty());
    over.Happens();
  });
}

TEST_P(CudaRingFailures, APeerThatIsGoneIsNamed) {
  Moment over;
  std::barrier all(size());
  RunRing(wire(), size(), [&](DeviceRank& rank) {
    EXPECT_TRUE(rank.communicator->Barrier().ok());
    all.arrive_and_wait();
    if (rank.communicator->rank() == 1) {
      if (wire() == Wire::kLocal) {
        rank.communicator.reset();
      } else {
        emulation::BreakNccl(1);
      }
      return over.Await();
    }
    if (rank.communicator->rank() != 0) return over.Await();
    const steady_clock::time_point start = steady_clock::now();
    const absl::Status status = HopAndBarrier(rank);
    EXPECT_LT(steady_clock::now() - start, std::chrono::seconds(5));
    EXPECT_EQ(status.code(), Code::kUnavailable) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1"));
    over.Happens();
  });
}

TEST_P(CudaRingFailures, LeavingAfterTheLastHopIsNoFailure) {
  RunRing(wire(), size(), [&](DeviceRank& rank) {
    const Tensor out = rank.ToDevice(std::vector<float>(100, 1)),
                 in = rank.ToDevice(std::vector<float>(100, 2));
    EXPECT_TRUE(rank.Move({out}, {in}).ok());
    rank.communicator.reset();
    EXPECT_EQ(rank.ToHost(in), std::vector<float>(100, 1));
  });
}

TEST_P(CudaRingFailures, WhatCannotBePostedIsRefused) {
  Moment over;
  RunRing(wire(), size(), [&](DeviceRank& rank) {
    if (rank.communicator->rank() != 0) return over.Await();
    EXPECT_EQ(rank.communicator->Await(1).code(), Code::kInvalidArgument);
    const Tensor values = rank.backend->Allocate(10, 10, DType::kF32, MemoryCategory::kTransient);
    EXPECT_EQ(rank.Move({values->Cols(0, 5)}, {}).code(), Code::kInvalidArgument);
    over.Happens();
  });
}

TEST_P(CudaRingFailures, SizesThatDisagreeAreFoundOnALocalRing) {
  if (wire() != Wire::kLocal) return;
  std::vector<absl::Status> results(size());
  RunRing(wire(), size(), [&](DeviceRank& rank) {
    const int me = rank.communicator->rank();
    const Tensor out = rank.ToDevice(std::vector<float>(me == 0 ? 99 : 100, 1));
    const Tensor in = rank.ToDevice(std::vector<float>(100, -1));
    results[me] = rank.Move({out}, {in});
    if (results[me].ok()) results[me] = rank.communicator->Barrier();
    if (me == 1) {
      EXPECT_EQ(rank.ToHost(in), std::vector<float>(100, -1));
    }
  });
  EXPECT_EQ(results[1].code(), Code::kInvalidArgument) << results[1];
  EXPECT_THAT(std::string(results[1].message()),
              HasSubstr("hop 1 from rank 0 to rank 1: transfer 0 has 396 bytes"));
  EXPECT_EQ(results[0].code(), Code::kUnavailable) << results[0];
}

class CudaNcclSetUp : public testing::Test {
 protected:
  void SetUp() override { PrepareDevices(); }
  /// What rank 0 of two says, whose rank 1 says this of itself.
  absl::Status Meet(const std::function<void(nccl::RankFacts&)>& change) {
    DeviceRank rank(0);
    LocalRendezvous rendezvous;
    nccl::RankFacts other = nccl::FactsOf(0);
    other.uuid = "another";
    other.bus = "0000:ff:00.0";
    change(other);
    EXPECT_TRUE(rendezvous.Put("nccl/rank/1", nccl::ToText(other)).ok());
    return MakeNcclCommunicator(*rank.backend, 0, 2, rendezvous, {milliseconds(300)}).status();
  }
};

TEST_F(CudaNcclSetUp, RefusesTwoRanksOnOneDevice) {
  LocalRendezvous rendezvous;
  std::vector<absl::Status> results(2);
  std::vector<std::thread> threads;
  for (int r = 0; r < 2; ++r) {
    threads.emplace_back([&, r] {
      DeviceRank rank(0);
      results[r] = MakeNcclCommunicator(*rank.backend, r, 2, rendezvous).status();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : results) {
    EXPECT_EQ(status.code(), Code::kFailedPrecondition) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 0 and rank 1 are both on GPU 0"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("one worker per GPU"));
  }
}

TEST_F(CudaNcclSetUp, RefusesVersionsThatDifferOrAreTooOld) {
  absl::Status status = Meet([](nccl::RankFacts& other) { other.version = "9.9"; });
  EXPECT_EQ(status.code(), Code::kFailedPrecondition) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("9.9: all workers of a job need the same version"));
  status = Meet([](nccl::RankFacts& other) { other.nccl_version = 22001; });
  EXPECT_EQ(status.code(), Code::kFailedPrecondition) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("has NCCL 2.28.9, rank 1 on " + nccl::FactsOf(0).host + " has 2.20.1"));
  status = Meet([](nccl::RankFacts& other) { other.nccl_version = 21803; });
  EXPECT_EQ(status.code(), Code::kFailedPrecondition) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("found NCCL 2.18.3, 2.19.0 or newer is needed"));
}

TEST_F(CudaNcclSetUp, ARankThatDoesNotJoinIsADeadline) {
  const absl::Status status = Meet([](nccl::RankFacts&) {});
  EXPECT_EQ(status.code(), Code::kDeadlineExceeded) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1"));
}

TEST_F(CudaNcclSetUp, ARankThatDoesNotComeIsADeadline) {
  DeviceRank rank(0);
  LocalRendezvous rendezvous;
  const absl::Status status =
      MakeNcclCommunicator(*rank.backend, 0, 2, rendezvous, {milliseconds(50)}).status();
  EXPECT_EQ(status.code(), Code::kDeadlineExceeded) << status;
}

}  // namespace
}  // namespace metp
