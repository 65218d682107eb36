// The emulated NCCL: ranks are threads, each with a device of its own.

#include <cuda_runtime.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include <chrono>
#include <cmath>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/cuda_emulation/emulated_nccl.h"
#include "tests/cuda_emulation/engine.h"

namespace metp::emulation {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

/// One rank: its stream, communicator and 64 floats in each of two device buffers. Used by its thread.
class Rank {
 public:
  static constexpr int kCount = 64;

  Rank(int rank, int ranks, const ncclUniqueId& id, int device) : rank_(rank) {
    cudaSetDevice(device);
    cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking);
    for (float** buffer : {&send_, &receive_}) {
      cudaMalloc(reinterpret_cast<void**>(buffer), kCount * sizeof(float));
      Fill(*buffer, 0);
    }
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    EXPECT_EQ(ncclCommInitRankConfig(&comm_, ranks, id, rank, &config), ncclInProgress);
    joined_ = Settle();
  }
  ~Rank() {
    if (comm_ != nullptr && Error() == ncclSuccess) {
      EXPECT_EQ(ncclCommFinalize(comm_), ncclInProgress);
      EXPECT_EQ(Settle(), ncclSuccess);
      EXPECT_EQ(ncclCommDestroy(comm_), ncclSuccess);
      comm_ = nullptr;
    }
    Abort();
    cudaStreamSynchronize(stream_);
    cudaFree(send_);
    cudaFree(receive_);
    cudaStreamDestroy(stream_);
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  int rank() const { return rank_; }
  ncclResult_t joined() const { return joined_; }
  ncclComm_t comm() const { return comm_; }
  cudaStream_t stream() const { return stream_; }
  float* send() const { return send_; }
  float* receive() const { return receive_; }

  void Fill(float* buffer, float value) {
    const std::vector<float> values(kCount, value);
    cudaMemcpy(buffer, values.data(), kCount * sizeof(float), cudaMemcpyHostToDevice);
  }
  std::vector<float> Values(const float* buffer) {
    std::vector<float> values(kCount);
    cudaStreamSynchronize(stream_);
    cudaMemcpy(values.data(), buffer, kCount * sizeof(float), cudaMemcpyDeviceToHost);
    return values;
  }
  ncclResult_t Error() {
    ncclResult_t error = ncclInternalError;
    EXPECT_EQ(ncclCommGetAsyncError(comm_, &error), ncclSuccess);
    return error;
  }
  ncclResult_t Settle() {
    ncclResult_t error = Error();
    for (; error == ncclInProgress; error = Error()) std::this_thread::yield();
    return error;
  }
  ncclResult_t AwaitError() {
    ncclResult_t error = Error();
    for (; error == ncclInProgress || error == ncclSuccess; error = Error()) std::this_thread::yield();
    return error;
  }
  void Send(const float* from, int peer, size_t count = kCount) {
    ncclSend(from, count, ncclFloat, peer, comm_, stream_);
  }
  void Receive(float* to, int peer, size_t count = kCount) {
    ncclRecv(to, count, ncclFloat, peer, comm_, stream_);
  }
  /// Sends to one and receives from another rank in a group, which is on the stream when it returns.
  void Exchange(const float* from, int to_rank, float* to, int from_rank) {
    ncclGroupStart();
    Send(from, to_rank);
    Receive(to, from_rank);
    EXPECT_EQ(ncclGroupEnd(), ncclInProgress);
    EXPECT_EQ(Settle(), ncclSuccess);
  }
  void Abort() {
    EXPECT_EQ(ncclCommAbort(comm_), ncclSuccess);  // null is legal
    comm_ = nullptr;
  }

 private:
  const int rank_;
  cudaStream_t stream_ = nullptr;
  float *send_ = nullptr, *receive_ = nullptr;
  ncclComm_t comm_ = nullptr;
  ncclResult_t joined_ = ncclInternalError;
};

void RunRanks(int ranks, const std::function<void(Rank&)>& body, int devices = 8) {
  Configure({.devices = devices});
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      Rank rank(r, ranks, id, r % devices);
      body(rank);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(CudaNccl, PassesBlocksAroundARing) {
  RunRanks(3, [](Rank& rank) {
    ASSERT_EQ(rank.joined(), ncclSuccess);
    rank.Fill(rank.send(), static_cast<float>(rank.rank()));
    float *from = rank.send(), *to = rank.receive();
    for (int hop = 1; hop <= 3; ++hop) {
      rank.Exchange(from, (rank.rank() + 1) % 3, to, (rank.rank() + 2) % 3);
      std::swap(from, to);
      EXPECT_EQ(rank.Values(from),
                std::vector<float>(Rank::kCount, static_cast<float>((rank.rank() + 3 - hop) % 3)));
    }
  });
  EXPECT_TRUE(TakeFaults().empty());
}

TEST(CudaNccl, MatchesMessagesBetweenTwoRanksInOrder) {
  RunRanks(2, [](Rank& rank) {
    rank.Fill(rank.send(), 1);
    rank.Fill(rank.receive(), 2);
    ncclGroupStart();
    if (rank.rank() == 0) {
      rank.Send(rank.send(), 1);
      rank.Send(rank.receive(), 1);
    } else {
      rank.Receive(rank.receive(), 0);
      rank.Receive(rank.send(), 0);
    }
    ncclGroupEnd();
    EXPECT_EQ(rank.Settle(), ncclSuccess);
    const float first = rank.rank() == 0 ? 2 : 1;  // in `receive`
    EXPECT_EQ(rank.Values(rank.receive())[5], first);
    EXPECT_EQ(rank.Values(rank.send())[5], 3 - first);
  });
  EXPECT_TRUE(TakeFaults().empty());
}

TEST(CudaNccl, SumsInTheOrderOfRanksEverywhere) {
  RunRanks(3, [](Rank& rank) {
    const float values[] = {1e8f, 1, -1e8f};  // the order shows
    rank.Fill(rank.send(), values[rank.rank()]);
    EXPECT_EQ(
        ncclAllReduce(rank.send(), rank.send(), Rank::kCount, ncclFloat, ncclSum, rank.comm(), rank.stream()),
        ncclInProgress);
    EXPECT_EQ(rank.Settle(), ncclSuccess);
    EXPECT_EQ(rank.Values(rank.send()), std::vector<float>(Rank::kCount, (1e8f + 1) - 1e8f));
  });
  EXPECT_TRUE(TakeFaults().empty());
}

TEST(CudaNccl, PutsNothingOnTheStreamBeforeItWasPolled) {
  RunRanks(1, [](Rank& rank) {
    rank.Fill(rank.send(), 7);
    ncclGroupStart();
    rank.Send(rank.send(), 0);
    rank.Receive(rank.receive(), 0);
    EXPECT_EQ(ncclGroupEnd(), ncclInProgress);
    EXPECT_EQ(rank.Values(rank.receive())[0], 0);
    EXPECT_EQ(ncclSend(rank.send(), 1, ncclFloat, 0, rank.comm(), rank.stream()), ncclInvalidArgument);
    EXPECT_EQ(rank.Error(), ncclInProgress);
    EXPECT_EQ(rank.Error(), ncclSuccess);
    EXPECT_EQ(rank.Values(rank.receive())[0], 7);
  });
  EXPECT_TRUE(TakeFaults().empty());
}

TEST(CudaNccl, DoesNotOrderOtherStreams) {
  if (!Watches()) GTEST_SKIP() << "the sanitizer of this build looks at accesses, not the emulation";
  RunRanks(2, [](Rank& rank) {
    rank.Exchange(rank.send(), 1 - rank.rank(), rank.receive(), 1 - rank.rank());
    cudaStream_t other = nullptr;
    cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
    if (rank.rank() == 0) cudaMemsetAsync(rank.receive(), 0, 4, other);  // waited for nothing
    cudaStreamSynchronize(other);
    cudaStreamDestroy(other);
  });
  const std::vector<std::string> faults = TakeFaults();
  ASSERT_FALSE(faults.empty());
  EXPECT_NE(faults[0].find("race"), std::string::npos) << faults[0];
}

TEST(CudaNccl, RefusesTwoRanksOnOneDevice) {
  RunRanks(
      2, [](Rank& rank) { EXPECT_EQ(rank.joined(), ncclInvalidUsage); }, 1);
}

TEST(CudaNccl, AbortEndsTheWorkInHand) {
  RunRanks(2, [](Rank& rank) {
    if (rank.rank() == 0) {
      rank.Receive(rank.receive(), 1);
      EXPECT_EQ(rank.Settle(), ncclSuccess);
      std::this_thread::sleep_for(milliseconds(20));
      EXPECT_EQ(cudaStreamQuery(rank.stream()), cudaErrorNotReady);
    }
    rank.Abort();
    EXPECT_EQ(cudaStreamSynchronize(rank.stream()), cudaSuccess);
  });
  EXPECT_TRUE(TakeFaults().empty());
}

TEST(CudaNccl, TellsThePeersOfABrokenRank) {
  RunRanks(3, [](Rank& rank) {
    if (rank.rank() == 1) BreakNccl(1);
    EXPECT_EQ(rank.AwaitError(), rank.rank() == 1 ? ncclSystemError : ncclRemoteError);
    rank.Abort();
  });
}

TEST(CudaNccl, ReportsSizesThatDisagreeOnBothSides) {
  RunRanks(2, [](Rank& rank) {
    if (rank.rank() == 0) rank.Send(rank.send(), 1, 8);
    if (rank.rank() == 1) rank.Receive(rank.receive(), 0, 9);
    EXPECT_EQ(rank.AwaitError(), ncclInvalidUsage);
    EXPECT_NE(std::string(ncclGetLastError(rank.comm())), "");
    EXPECT_EQ(cudaStreamSynchronize(rank.stream()), cudaSuccess);  // it does not hang
    rank.Abort();
  });
}

TEST(CudaNccl, StartsADelayedGroupLater) {
  DelayNccl(0, milliseconds(50));
  RunRanks(1, [](Rank& rank) {
    const auto begin = steady_clock::now();
    rank.Exchange(rank.send(), 0, rank.receive(), 0);
    cudaStreamSynchronize(rank.stream());
    EXPECT_GE(steady_clock::now() - begin, milliseconds(50));
  });
  EXPECT_TRUE(TakeFaults().empty());
}

}  // namespace
}  // namespace metp::emulation
