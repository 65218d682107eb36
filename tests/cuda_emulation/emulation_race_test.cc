// Races: between threads of a warp, of a block, between blocks, between streams; each with its correct twin.

#include <chrono>
#include <future>
#include <memory>
#include <thread>

#include "tests/cuda_emulation/emulation_test.h"

namespace metp::emulation {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

// --- Within a block --------------------------------------------------------------------------------------------------

/// Turns a block's values round through `room`.
__global__ void Reverse(int* room_in_memory, bool barrier, int* y) {
  int* const room = room_in_memory != nullptr ? room_in_memory : Shared<int>();
  room[threadIdx.x] = static_cast<int>(threadIdx.x);
  if (barrier) __syncthreads();
  y[threadIdx.x] = room[blockDim.x - 1 - threadIdx.x];
}

TEST_F(CudaEmulationFaults, FindsAMissingBarrierOverSharedMemory) {
  const Buffer<int> y(128), room(128);
  cudaMemset(y.data(), 0, y.bytes());
  Start({.block = 128, .shared_bytes = 512}, Reverse, nullptr, true, y.data());
  EXPECT_THAT(Faults(), IsEmpty());
  EXPECT_EQ(y.Read()[0], 127);
  Start({.block = 128, .shared_bytes = 512}, Reverse, nullptr, false, y.data());
  EXPECT_THAT(Faults(), testing::Contains(AllOf(StartsWith("race: kernel Reverse, block (0,0,0)"),
                                                HasSubstr("shared memory, which kernel Reverse"))));
}

TEST_F(CudaEmulationFaults, FindsAMissingBarrierOverDeviceMemory) {
  const Buffer<int> y(128), room(128);
  Start({.block = 128}, Reverse, room.data(), true, y.data());
  EXPECT_THAT(Faults(), IsEmpty());
  cudaMemset(room.data(), 0, room.bytes());
  Start({.block = 128}, Reverse, room.data(), false, y.data());
  EXPECT_THAT(Faults(), ElementsAre(StartsWith("race: kernel Reverse, block (0,0,0)")));
}

/// All read what thread 40 writes over right behind.
__global__ void WriteAfterReads(bool barrier, int* y) {
  int* const shared = Shared<int>();
  if (threadIdx.x == 0) *shared = 1;
  __syncthreads();
  y[threadIdx.x] = *shared;
  if (barrier) __syncthreads();
  if (threadIdx.x == 40) *shared = 2;
}

TEST_F(CudaEmulationFaults, FindsAWriteThatDoesNotWaitForReaders) {
  const Buffer<int> y(256);
  Start({.block = 256, .shared_bytes = 4}, WriteAfterReads, true, y.data());
  EXPECT_THAT(Faults(), IsEmpty());
  Start({.block = 256, .shared_bytes = 4}, WriteAfterReads, false, y.data());
  EXPECT_THAT(Faults(), ElementsAre(StartsWith("race: kernel WriteAfterReads")));
}

enum class Order { kNone, kSyncWarp, kShuffle, kHalves };

__global__ void WarpReverse(Order order, int* y) {
  int* const shared = Shared<int>();
  const unsigned half = threadIdx.x < 16 ? 0xffffu : 0xffff0000u;
  shared[threadIdx.x] = 1;
  if (order == Order::kSyncWarp) __syncwarp();
  if (order == Order::kShuffle) __shfl_xor_sync(~0u, 1, 1);
  if (order == Order::kHalves) __syncwarp(half);
  y[threadIdx.x] = shared[threadIdx.x ^ 15];  // of the same half
  if (order == Order::kHalves) __syncwarp(half);
  shared[threadIdx.x ^ 15] = 2;
}

TEST_F(CudaEmulationFaults, OrdersAWarpByWhatSynchronisesIt) {
  const Buffer<int> y(32);
  for (const Order order : {Order::kSyncWarp, Order::kShuffle, Order::kHalves}) {
    Start({.shared_bytes = 128}, WarpReverse, order, y.data());
    EXPECT_THAT(Faults(), IsEmpty());
  }
  cudaMemset(y.data(), 0, y.bytes());
  Start({.shared_bytes = 128}, WarpReverse, Order::kNone, y.data());
  EXPECT_THAT(Faults(), testing::Contains(StartsWith("race: kernel WarpReverse")));
}

__global__ void AcrossHalves(unsigned mask) {
  int* const shared = Shared<int>();
  if ((mask >> threadIdx.x & 1) == 0) return;
  shared[threadIdx.x] = 1;
  __syncwarp(threadIdx.x < 16 ? mask & 0xffffu : mask & 0xffff0000u);
  shared[threadIdx.x ^ 16] = 2;
}

TEST_F(CudaEmulationFaults, OrdersOnlyTheLanesThatAMaskNames) {
  Start({.shared_bytes = 128}, AcrossHalves, 0xffffffffu);
  EXPECT_THAT(Faults(), ElementsAre(StartsWith("race: kernel AcrossHalves")));
}

/// Two warps with more synchronisations than one actor counts.
__global__ void ManyTicks(int ticks, int* y) {
  int* const shared = Shared<int>();
  shared[threadIdx.x] = 0;
  for (int i = 0; i < ticks; ++i) __syncwarp();
  __syncthreads();
  y[threadIdx.x] = shared[63 - threadIdx.x];
  __syncthreads();
  y[63 - threadIdx.x] += 1;
}

TEST_F(CudaEmulationFaults, KeepsOrderOverManySynchronisations) {
  const Buffer<int> y(64);
  Start({.block = 64, .shared_bytes = 256}, ManyTicks, 600'000, y.data());
  EXPECT_THAT(Faults(), IsEmpty());
}

// --- Between blocks --------------------------------------------------------------------------------------------------

__global__ void Count(bool atomic, int* total) {
  if (threadIdx.x != 0) return;
  if (atomic) {
    atomicAdd(total, 1);
    atomicMax(total + 1, static_cast<int>(blockIdx.x));
    atomicMin(total + 2, -static_cast<int>(blockIdx.x));
  } else {
    *total += 1;
  }
}

TEST_F(CudaEmulationFaults, FindsBlocksThatUpdateTheSameValue) {
  const Buffer<int> total(std::vector<int>(3, 0));
  Start({.grid = 10}, Count, true, total.data());
  EXPECT_THAT(Faults(), IsEmpty());
  EXPECT_THAT(total.Read(), ElementsAre(10, 9, -9));
  Start({.grid = 10}, Count, false, total.data());
  EXPECT_THAT(Faults(), ElementsAre(AllOf(StartsWith("race: kernel Count, block (1,0,0) thread (0,0,0)"),
                                          HasSubstr("block (0,0,0)"))));
}

__global__ void Halves(cuda::bf16* x) {
  x[blockIdx.x * 33 + threadIdx.x] = cuda::FromFloat<cuda::bf16>(1.0f);
}

TEST_F(CudaEmulationFaults, TellsTheHalvesOfAWordApart) {
  const Buffer<cuda::bf16> x(33 * 8);
  Start({.grid = 8, .block = 33}, Halves, x.data());
  EXPECT_THAT(Faults(), IsEmpty());
  Start({.grid = 8, .block = 34}, Halves, x.data());  // the last of each block is the first of the next
  EXPECT_THAT(Faults(), testing::Contains(AllOf(StartsWith("race: kernel Halves"), HasSubstr("of 2 bytes"))));
}

// --- Between streams -------------------------------------------------------------------------------------------------

__global__ void Write(int* x, int value) { x[threadIdx.x] = value; }
__global__ void Read(const int* x, int* y) { y[threadIdx.x] = x[threadIdx.x]; }

TEST_F(CudaEmulationFaults, FindsAMissingWaitBetweenStreams) {
  const Stream first, second;
  const Event written;
  const Buffer<int> x(32), y(32);
  const auto run = [&] {
    Start({.stream = first}, Write, x.data(), 1);
    cudaEventRecord(written, first);
    cudaStreamWaitEvent(second, written);
    Start({.stream = second}, Read, x.data(), y.data());
  };
  run();
  EXPECT_THAT(Faults(), IsEmpty());
  DropWait(0);
  run();
  EXPECT_EQ(WaitsMade(), 1);
  DropWait(-1);
  EXPECT_THAT(Faults(), ElementsAre(AllOf(StartsWith("race: kernel "), HasSubstr("kernel Write"),
                                          HasSubstr("kernel Read"))));
}

TEST_F(CudaEmulationFaults, DropsTheWaitThatIsNamed) {
  const Stream first, second;
  const Event event;
  DropWait(1);
  for (int i = 0; i < 3; ++i) {
    cudaEventRecord(event, first);
    cudaStreamWaitEvent(second, event);
  }
  EXPECT_EQ(WaitsMade(), 3);
  DropWait(-1);
  EXPECT_EQ(WaitsMade(), 0);
}

TEST_F(CudaEmulationFaults, OrdersStreamsThroughTheHost) {
  const Stream first, second;
  const Buffer<int> x(32), y(32);
  Start({.stream = first}, Write, x.data(), 1);
  cudaStreamSynchronize(first);
  Start({.stream = second}, Read, x.data(), y.data());
  cudaStreamSynchronize(second);
  Start({.stream = first}, Write, x.data(), 2);
  EXPECT_THAT(Faults(), IsEmpty());
}

TEST_F(CudaEmulationFaults, OrdersStreamsThroughAMessage) {
  const Stream first, second;
  const Buffer<int> x(32), y(32);
  auto message = std::make_shared<std::promise<std::shared_ptr<const Clock>>>();
  Start({.stream = first}, Write, x.data(), 1);
  Enqueue(first, "send", [message] { message->set_value(Release()); });
  Enqueue(second, "receive", [message] { Acquire(message->get_future().get()); });
  Start({.stream = second}, Read, x.data(), y.data());
  EXPECT_THAT(Faults(), IsEmpty());
}

TEST_F(CudaEmulationFaults, FindsMemoryThatIsFreedWhileAnotherStreamUsesIt) {
  const Stream first, second;
  const Event used;
  const Buffer<int> y(32);
  for (const bool wait : {true, false}) {
    int* x = nullptr;
    cudaMallocAsync(&x, 128, first);
    Start({.stream = first}, Write, x, 1);
    cudaStreamSynchronize(first);
    Start({.stream = second}, Read, x, y.data());
    cudaEventRecord(used, second);
    if (wait) {
      cudaStreamWaitEvent(first, used);
    } else {
      while (cudaStreamQuery(first) == cudaErrorNotReady) {
      }
      // In fact after the read, but by chance only.
      Enqueue(first, "delay", [] { std::this_thread::sleep_for(std::chrono::milliseconds(50)); });
    }
    cudaFreeAsync(x, first);
    EXPECT_THAT(Faults(),
                wait ? testing::Matcher<std::vector<std::string>>(IsEmpty())
                     : ElementsAre(AllOf(StartsWith("race: cudaFreeAsync"), HasSubstr("kernel Read"))));
  }
}

TEST_F(CudaEmulationFaults, FindsCopiesOfOneHostBlockThatNothingOrders) {
  const Stream in, out;
  const Buffer<int> x(std::vector<int>(32, 1)), y(32);
  int* host = nullptr;
  cudaMallocHost(&host, 128);
  cudaMemcpyAsync(host, x.data(), 128, cudaMemcpyDeviceToHost, out);
  cudaMemcpyAsync(y.data(), host, 128, cudaMemcpyHostToDevice, in);
  EXPECT_THAT(Faults(), ElementsAre(StartsWith("race: cudaMemcpyAsync")));
  cudaFreeHost(host);
}

}  // namespace
}  // namespace metp::emulation
