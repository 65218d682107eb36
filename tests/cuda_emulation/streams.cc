// The runtime's calls on streams.

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "tests/cuda_emulation/device.h"
#include "tests/cuda_emulation/engine.h"
#include "tests/cuda_emulation/event.h"
#include "tests/cuda_emulation/here.h"
#include "tests/cuda_emulation/pool.h"
#include "tests/cuda_emulation/stream.h"

namespace metp::emulation {
namespace {

struct Streams {
  std::mutex mutex;
  std::set<CUstream_st*> made;             // by the program, all devices
  std::map<int, CUstream_st*> of_devices;  // the default ones, made at first use and never ended
};
Streams& All() {
  static Streams* const streams = new Streams;
  return *streams;
}

struct Waits {
  int made = 0;
  int dropped = -1;
};
thread_local Waits waits;

/// The streams that the default stream of `device` is ordered with.
std::vector<CUstream_st*> Blocking(int device) {
  Streams& streams = All();
  const std::lock_guard lock(streams.mutex);
  std::vector<CUstream_st*> blocking;
  for (CUstream_st* stream : streams.made) {
    if (stream->blocking() && stream->device() == device) blocking.push_back(stream);
  }
  return blocking;
}

bool IsDefault(const CUstream_st& stream) {
  Streams& streams = All();
  const std::lock_guard lock(streams.mutex);
  const auto it = streams.of_devices.find(stream.device());
  return it != streams.of_devices.end() && it->second == &stream;
}

cudaError_t Make(cudaStream_t* stream, unsigned int flags) {
  if (const cudaError_t error = DeviceState(); error != cudaSuccess) return Result(error);
  *stream = new CUstream_st(CurrentDevice(), (flags & cudaStreamNonBlocking) == 0);
  Streams& streams = All();
  const std::lock_guard lock(streams.mutex);
  streams.made.insert(*stream);
  return cudaSuccess;
}

}  // namespace

CUstream_st& StreamOf(cudaStream_t stream) {
  if (stream != nullptr) return *stream;
  Streams& streams = All();
  const std::lock_guard lock(streams.mutex);
  CUstream_st*& made = streams.of_devices[CurrentDevice()];
  if (made == nullptr) made = new CUstream_st(CurrentDevice(), false);
  return *made;
}

// The default stream waits for what was enqueued on the blocking ones, and they for it. (CUDA Runtime API, "Stream
// synchronization behavior", legacy default stream.)
void EnqueueOperation(CUstream_st& stream, const Operation& operation, std::function<void()> work) {
  if (!IsDefault(stream)) return stream.Push(&operation, std::move(work));
  const std::vector<CUstream_st*> blocking = Blocking(stream.device());
  for (CUstream_st* other : blocking) stream.Wait(other->Record());
  stream.Push(&operation, std::move(work));
  const std::shared_ptr<Fence> done = stream.Record();
  for (CUstream_st* other : blocking) other->Wait(done);
}

void Enqueue(cudaStream_t stream, const char* name, std::function<void()> work) {
  EnqueueOperation(StreamOf(stream), {name, nullptr, 0, {}, {}}, std::move(work));
}

void Drain(CUstream_st& stream) { JoinHostClock(stream.Record()->Await()); }

void DrainDevice(int device) {
  std::vector<std::shared_ptr<Fence>> fences;
  {
    Streams& streams = All();
    const std::lock_guard lock(streams.mutex);
    for (CUstream_st* stream : streams.made) {
      if (stream->device() == device) fences.push_back(stream->Record());
    }
    const auto it = streams.of_devices.find(device);
    if (it != streams.of_devices.end()) fences.push_back(it->second->Record());
  }
  for (const std::shared_ptr<Fence>& fence : fences) JoinHostClock(fence->Await());
}

int WaitsMade() { return waits.made; }
void DropWait(int number) { waits = {0, number}; }

std::shared_ptr<const Clock> Release() {
  return std::make_shared<const Clock>(CUstream_st::InHand()->clock());
}

void Acquire(const std::shared_ptr<const Clock>& clock) {
  Clock& mine = CUstream_st::InHand()->clock();
  mine.Join(*clock);
  here.clock = mine.data();
  here.slots = mine.slots();
}

}  // namespace metp::emulation

using namespace metp::emulation;  // NOLINT: below are C functions only

cudaError_t cudaStreamCreate(cudaStream_t* stream) { return Make(stream, cudaStreamDefault); }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
  return Make(stream, flags);
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int flags, int priority) {
  return Make(stream, flags);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  if (stream == nullptr) return Result(cudaErrorInvalidResourceHandle);
  {
    Streams& streams = All();
    const std::lock_guard lock(streams.mutex);
    if (streams.made.erase(stream) == 0) return Result(cudaErrorInvalidResourceHandle);
  }
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (CUstream_st::InHand() != nullptr) return Result(cudaErrorNotPermitted);
  CUstream_st& waited = StreamOf(stream);
  Drain(waited);
  TrimPools(waited.device());
  return Result(DeviceState(waited.device()));
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  CUstream_st& asked = StreamOf(stream);
  if (const cudaError_t error = DeviceState(asked.device()); error != cudaSuccess) return Result(error);
  // A fence of its own would still be on its way; so the last one asked for is looked at again.
  thread_local std::map<CUstream_st*, std::shared_ptr<Fence>> last;
  std::shared_ptr<Fence>& fence = last[&asked];
  if (fence == nullptr) fence = asked.Record();
  if (!fence->passed()) return Result(cudaErrorNotReady);
  JoinHostClock(fence->Await());
  last.erase(&asked);
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
  if (event == nullptr) return Result(cudaErrorInvalidResourceHandle);
  CUstream_st& waiting = StreamOf(stream);
  if (const cudaError_t error = DeviceState(waiting.device()); error != cudaSuccess) return Result(error);
  if (waits.made++ == waits.dropped) return cudaSuccess;
  if (const std::shared_ptr<Fence> fence = event->fence(); fence != nullptr) waiting.Wait(fence);
  return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* argument) {
  CUstream_st& on = StreamOf(stream);
  if (const cudaError_t error = DeviceState(on.device()); error != cudaSuccess) return Result(error);
  on.Push(nullptr, [function, argument] { function(argument); });
  return cudaSuccess;
}
