// The runtime's calls: streams and events in order, their times, pools and their limits, devices and their errors.

#include <atomic>
#include <chrono>
#include <cmath>
#include <limits>
#include <thread>

#include "tests/cuda_emulation/emulation_test.h"

namespace metp::emulation {
namespace {

using testing::Each;

void Sleep(int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }

TEST_F(CudaEmulation, ReturnsBeforeTheWorkIsDone) {
  const Stream stream;
  const Event done;
  std::atomic<bool> go = false;
  Enqueue(stream, "wait", [&] {
    while (!go) std::this_thread::yield();
  });
  cudaEventRecord(done, stream);
  EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady);
  EXPECT_EQ(cudaEventQuery(done), cudaErrorNotReady);
  float milliseconds = 0;
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, done, done), cudaErrorNotReady);
  go = true;
  EXPECT_EQ(cudaEventSynchronize(done), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(done), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(stream), cudaSuccess);
  cudaGetLastError();
}

TEST_F(CudaEmulation, WaitsForTheRecordThatWasLastWhenItWasAsked) {
  const Stream first, second;
  const Event event;
  std::atomic<int> passed = 0;
  int seen = -1;
  cudaEventRecord(event, first);  // passes at once
  cudaStreamWaitEvent(second, event);
  cudaEventRecord(event, second);
  Enqueue(first, "slow", [&] {
    Sleep(20);
    passed = 1;
  });
  cudaEventRecord(event, first);
  cudaStreamWaitEvent(second, event);
  Enqueue(second, "look", [&] { seen = passed; });
  cudaStreamSynchronize(second);
  EXPECT_EQ(seen, 1);
}

TEST_F(CudaEmulation, TimesWhatLiesBetweenEvents) {
  const Stream stream;
  const Event begin, end, never;
  cudaEventRecord(begin, stream);
  Enqueue(stream, "sleep", [] { Sleep(30); });
  cudaEventRecord(end, stream);
  cudaEventSynchronize(end);
  float milliseconds = 0;
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, begin, end), cudaSuccess);
  EXPECT_GE(milliseconds, 30.0f);
  EXPECT_LT(milliseconds, 3000.0f);
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, never, end), cudaErrorInvalidResourceHandle);
  cudaGetLastError();
}

TEST_F(CudaEmulation, OrdersTheDefaultStreamWithBlockingStreams) {
  cudaStream_t blocking = nullptr;
  cudaStreamCreate(&blocking);
  std::vector<int> order;
  Enqueue(blocking, "first", [&] {
    Sleep(10);
    order.push_back(1);
  });
  Enqueue(nullptr, "second", [&] {
    Sleep(10);
    order.push_back(2);
  });
  Enqueue(blocking, "third", [&] { order.push_back(3); });
  cudaDeviceSynchronize();
  EXPECT_THAT(order, testing::ElementsAre(1, 2, 3));
  cudaStreamDestroy(blocking);
}

TEST_F(CudaEmulation, RunsAHostFunctionInTheStreamsOrder) {
  const Stream stream;
  int value = 0;
  Enqueue(stream, "sleep", [&value] {
    Sleep(10);
    value = 1;
  });
  cudaLaunchHostFunc(
      stream, [](void* at) { *static_cast<int*>(at) *= 7; }, &value);
  cudaStreamSynchronize(stream);
  EXPECT_EQ(value, 7);
}

TEST_F(CudaEmulation, CopiesRowsAndFills) {
  std::vector<int> from(20), to(20, -1);
  for (int i = 0; i < 20; ++i) from[static_cast<size_t>(i)] = i;
  const Buffer<int> x(20);
  cudaMemset(x.data(), 0, x.bytes());
  // 4 rows of 3 in rows of 5
  EXPECT_EQ(cudaMemcpy2DAsync(x.data(), 20, from.data(), 12, 12, 4, cudaMemcpyHostToDevice), cudaSuccess);
  EXPECT_EQ(cudaMemset2DAsync(x.data() + 3, 20, 0xff, 4, 4), cudaSuccess);
  cudaMemcpy(to.data(), x.data(), 80, cudaMemcpyDeviceToHost);
  EXPECT_THAT(to, testing::ElementsAre(0, 1, 2, -1, 0, 3, 4, 5, -1, 0, 6, 7, 8, -1, 0, 9, 10, 11, -1, 0));
}

TEST_F(CudaEmulation, RefusesAPitchOf2To31OrMore) {
  const Buffer<int> x(4);
  int host[4] = {};
  constexpr size_t kMost = 0x7fffffff;
  const auto copy = [&](size_t to_pitch, size_t from_pitch) {
    return cudaMemcpy2DAsync(x.data(), to_pitch, host, from_pitch, 16, 1, cudaMemcpyHostToDevice);
  };
  EXPECT_EQ(copy(kMost, kMost), cudaSuccess);
  EXPECT_EQ(copy(kMost + 1, 16), cudaErrorInvalidPitchValue);
  EXPECT_EQ(copy(16, kMost + 1), cudaErrorInvalidPitchValue);
  EXPECT_EQ(cudaMemset2DAsync(x.data(), kMost + 1, 0, 16, 1), cudaErrorInvalidPitchValue);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidPitchValue);
  cudaDeviceSynchronize();
}

TEST_F(CudaEmulation, RefusesACopyWhoseKindContradictsItsEnds) {
  if (!Watches()) GTEST_SKIP() << "addresses do not tell in this build";
  const Buffer<int> x(4);
  int host[4] = {};
  EXPECT_EQ(cudaMemcpy(x.data(), host, 16, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(host, host, 16, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  cudaGetLastError();
}

TEST_F(CudaEmulation, FillsNewMemoryWithNaN) {
  const Buffer<float> x(10);
  const std::vector<float> values = x.Read();
  for (const float value : values) EXPECT_TRUE(std::isnan(value));
  TakeFaults();  // that nothing wrote it
}

// --- Memory ----------------------------------------------------------------------------------------------------------

class Pool {
 public:
  explicit Pool(uint64_t threshold) {
    cudaMemPoolProps properties = {};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location.type = cudaMemLocationTypeDevice;
    EXPECT_EQ(cudaMemPoolCreate(&handle_, &properties), cudaSuccess);
    EXPECT_EQ(cudaMemPoolSetAttribute(handle_, cudaMemPoolAttrReleaseThreshold, &threshold), cudaSuccess);
  }
  ~Pool() { cudaMemPoolDestroy(handle_); }
  operator cudaMemPool_t() const { return handle_; }  // NOLINT: used wherever its handle is
  uint64_t Get(cudaMemPoolAttr attribute) const {
    uint64_t bytes = 0;
    EXPECT_EQ(cudaMemPoolGetAttribute(handle_, attribute, &bytes), cudaSuccess);
    return bytes;
  }

 private:
  cudaMemPool_t handle_ = nullptr;
};

TEST_F(CudaEmulation, HasNoMoreMemoryThanItWasGiven) {
  cudaDeviceSynchronize();
  Configure({.memory_bytes = 16 << 20});
  const Stream stream;
  const Pool pool(std::numeric_limits<uint64_t>::max());
  void *a = nullptr, *b = nullptr;
  EXPECT_EQ(cudaMallocFromPoolAsync(&a, 12 << 20, pool, stream), cudaSuccess);
  EXPECT_EQ(cudaMallocFromPoolAsync(&b, 8 << 20, pool, stream), cudaErrorMemoryAllocation);
  EXPECT_EQ(b, nullptr);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  size_t free = 0, total = 0;
  cudaMemGetInfo(&free, &total);
  EXPECT_EQ(total, 16u << 20);
  EXPECT_EQ(free, 4u << 20);
  // Free from the call on, for what comes behind it.
  cudaFreeAsync(a, stream);
  EXPECT_EQ(cudaMallocFromPoolAsync(&b, 8 << 20, pool, stream), cudaSuccess);
  cudaFreeAsync(b, stream);
  cudaStreamSynchronize(stream);
}

TEST_F(CudaEmulation, KeepsInAPoolWhatItsThresholdSays) {
  const Stream stream;
  const Pool keeps(std::numeric_limits<uint64_t>::max()), gives_back(0);
  for (const Pool* pool : {&keeps, &gives_back}) {
    void* data = nullptr;
    cudaMallocFromPoolAsync(&data, 3 << 20, *pool, stream);
    EXPECT_EQ(pool->Get(cudaMemPoolAttrUsedMemCurrent), 3u << 20);
    EXPECT_EQ(pool->Get(cudaMemPoolAttrReservedMemCurrent), 4u << 20);
    cudaFreeAsync(data, stream);
    EXPECT_EQ(pool->Get(cudaMemPoolAttrUsedMemCurrent), 0u);
    EXPECT_EQ(pool->Get(cudaMemPoolAttrReservedMemCurrent), 4u << 20);
  }
  cudaStreamSynchronize(stream);
  EXPECT_EQ(keeps.Get(cudaMemPoolAttrReservedMemCurrent), 4u << 20);
  EXPECT_EQ(gives_back.Get(cudaMemPoolAttrReservedMemCurrent), 0u);
  cudaMemPoolTrimTo(keeps, 1 << 20);
  EXPECT_EQ(keeps.Get(cudaMemPoolAttrReservedMemCurrent), 1u << 20);
}

TEST_F(CudaEmulation, HasNoUseForPiecesUntilAPoolIsTrimmed) {
  cudaDeviceSynchronize();
  Configure({.memory_bytes = 16 << 20, .fragments = true});
  const Stream stream;
  const Pool pool(std::numeric_limits<uint64_t>::max());
  void* data = nullptr;
  EXPECT_EQ(cudaMallocFromPoolAsync(&data, 8 << 20, pool, stream), cudaSuccess);
  EXPECT_EQ(cudaFreeAsync(data, stream), cudaSuccess);
  EXPECT_EQ(cudaMallocFromPoolAsync(&data, 10 << 20, pool, stream), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(cudaMemPoolTrimTo(pool, 0), cudaSuccess);
  EXPECT_EQ(cudaMallocFromPoolAsync(&data, 10 << 20, pool, stream), cudaSuccess);
  EXPECT_EQ(cudaFreeAsync(data, stream), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  cudaGetLastError();
}

TEST_F(CudaEmulation, LocksNoMoreOfTheHostThanItWasGiven) {
  Configure({.pinned_bytes = 1 << 20});
  void *a = nullptr, *b = nullptr;
  EXPECT_EQ(cudaMallocHost(&a, 700 << 10), cudaSuccess);
  EXPECT_EQ(cudaMallocHost(&b, 700 << 10), cudaErrorMemoryAllocation);
  EXPECT_EQ(b, nullptr);
  EXPECT_EQ(cudaFreeHost(a), cudaSuccess);
  EXPECT_EQ(cudaMallocHost(&b, 700 << 10), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(b), cudaSuccess);
  cudaGetLastError();
}

TEST_F(CudaEmulation, RefusesToFreeTwice) {
  void* data = nullptr;
  cudaMalloc(&data, 100);
  EXPECT_EQ(cudaFreeAsync(data, nullptr), cudaSuccess);
  EXPECT_EQ(cudaFreeAsync(data, nullptr), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(&data), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(nullptr), cudaSuccess);
  cudaGetLastError();
}

TEST_F(CudaEmulation, TellsWhereAnAddressIs) {
  const Buffer<int> x(4);
  int* pinned = nullptr;
  cudaMallocHost(&pinned, 16);
  cudaPointerAttributes attributes;
  EXPECT_EQ(cudaPointerGetAttributes(&attributes, x.data() + 3), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeDevice);
  EXPECT_EQ(attributes.device, 0);
  EXPECT_EQ(cudaPointerGetAttributes(&attributes, pinned + 1), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeHost);
  EXPECT_EQ(cudaPointerGetAttributes(&attributes, &attributes), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeUnregistered);
  cudaFreeHost(pinned);
}

// --- Devices ---------------------------------------------------------------------------------------------------------

TEST_F(CudaEmulation, HasAsManyDevicesAsItWasGiven) {
  int count = 0;
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
  EXPECT_EQ(count, 1);
  EXPECT_EQ(cudaSetDevice(1), cudaErrorInvalidDevice);
  Configure({.devices = 2});
  EXPECT_EQ(cudaSetDevice(1), cudaSuccess);
  cudaDeviceProp properties;
  EXPECT_EQ(cudaGetDeviceProperties(&properties, 1), cudaSuccess);
  EXPECT_STREQ(properties.name, "emulated");
  EXPECT_EQ(properties.major, 8);
  EXPECT_EQ(properties.sharedMemPerBlockOptin, 163u * 1024);
  char id[20];
  EXPECT_EQ(cudaDeviceGetPCIBusId(id, sizeof(id), 1), cudaSuccess);
  EXPECT_STREQ(id, "0000:02:00.0");
  EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
  Configure({.major = 8, .minor = 6, .shared_bytes = 99 * 1024});
  EXPECT_EQ(cudaGetDeviceProperties(&properties, 0), cudaSuccess);
  EXPECT_EQ(properties.minor, 6);
  EXPECT_EQ(properties.sharedMemPerBlockOptin, 99u * 1024);
  Configure({.devices = 0});
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorNoDevice);
  EXPECT_EQ(cudaSetDevice(0), cudaErrorNoDevice);
  EXPECT_STREQ(cudaGetErrorName(cudaErrorNoDevice), "cudaErrorNoDevice");
  Configure({});
  cudaGetLastError();
}

TEST_F(CudaEmulation, GivesTheErrorOfABrokenDeviceFromEveryCall) {
  const Stream stream;
  BreakDevice(cudaErrorECCUncorrectable);
  void* data = nullptr;
  EXPECT_EQ(cudaMallocAsync(&data, 4, stream), cudaErrorECCUncorrectable);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorECCUncorrectable);
  EXPECT_EQ(cudaGetLastError(), cudaErrorECCUncorrectable);
  EXPECT_EQ(cudaGetLastError(), cudaErrorECCUncorrectable);
  BreakDevice(cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  cudaGetLastError();
}

}  // namespace
}  // namespace metp::emulation
