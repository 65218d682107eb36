#pragma once

// The emulated device: streams that are threads with a queue, events, memory that watches over its use, kernels run by
// fibers. Behind the emulated headers in include/; tests use the part on faults and waits.
//
// Every access of emulated device memory and of a block's shared memory is looked at: by the compiler's instrumentation in
// kernels (they are compiled with -fsanitize=thread and linked against this library's own callbacks), by Read and Write
// elsewhere. Found are accesses outside an allocation, reads of what nothing wrote, and two accesses that nothing orders.

#include <cuda_runtime.h>

#include <cstddef>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

namespace metp::emulation {

// --- For tests -------------------------------------------------------------------------------------------------------

/// What went wrong since the last call, one line each: "out of bounds", "uninitialised" or "race", where, by whom.
std::vector<std::string> TakeFaults();

/// Whether this library looks at accesses: not in a build with a sanitizer, which does instead (and ends the process).
bool Watches();

/// cudaStreamWaitEvent calls that this host thread made so far.
int WaitsMade();
/// From now on this host thread's wait number `number` (counting from 0) is left out; -1: none. Starts WaitsMade afresh.
void DropWait(int number);

struct DeviceOptions {
  int devices = 1;
  size_t memory_bytes = size_t{1} << 30;  // of each
  int major = 8, minor = 0;
  size_t shared_bytes = 163 * 1024;                          // that a block may ask for
  size_t pinned_bytes = std::numeric_limits<size_t>::max();  // that the host can lock
  /// What is freed into a pool lies in pieces too small for anything until the pool is trimmed.
  bool fragments = false;
};
/// The devices of this process from now on, all mended. No memory may be in use.
void Configure(const DeviceOptions& options);

/// Every call that names the calling thread's device returns this error from now on, as after an uncorrectable one;
/// cudaSuccess mends it. A deadlock breaks its device with cudaErrorLaunchFailure.
void BreakDevice(cudaError_t error);

// --- For emulated libraries ------------------------------------------------------------------------------------------

/// Runs `work` on the stream's thread, behind what was enqueued before.
void Enqueue(cudaStream_t stream, const char* name, std::function<void()> work);

/// The work in hand on this stream's thread reads or writes device memory (host memory is not looked at).
void Read(const void* from, size_t bytes);
void Write(void* to, size_t bytes);

/// What has happened before this point of the stream in hand, to be handed to another stream (a message, say).
class Clock;
std::shared_ptr<const Clock> Release();
void Acquire(const std::shared_ptr<const Clock>& clock);

/// Inside a kernel: all 32 lanes of the warp give `bytes` (at most 64) and see all lanes': lane l's at `bytes * l` from
/// the pointer returned, valid until the warp's next exchange. Orders the lanes as __syncwarp does.
const unsigned char* WarpExchange(const void* mine, size_t bytes);

}  // namespace metp::emulation
