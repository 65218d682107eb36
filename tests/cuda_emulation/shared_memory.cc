#include "tests/cuda_emulation/shared_memory.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/cuda_emulation/address_space.h"
#include "tests/cuda_emulation/here.h"
#include "tests/cuda_emulation/sanitizers.h"

namespace metp::cuda {

// What kernels name in Shared<T>() (worker/backend/cuda/device_code.h).
extern __thread __attribute__((aligned(1024))) unsigned char metp_shared[];
__thread __attribute__((aligned(1024))) unsigned char metp_shared[emulation::kSharedBytes];

}  // namespace metp::cuda

namespace metp::emulation {
namespace {

constexpr size_t kCellBytes = kSharedBytes * kCellBytesPerByte;

size_t CellBytes(size_t bytes) { return (bytes + 3) / 4 * kCellsPerWord * sizeof(uint64_t); }

}  // namespace

SharedMemory::~SharedMemory() {
  Unpoison(metp::cuda::metp_shared, kSharedBytes);  // the host thread's stack may be another's next
  if (states_ != nullptr) munmap(states_, kSharedBytes + kCellBytes);
}

void SharedMemory::Begin(size_t bytes) {
  Unpoison(metp::cuda::metp_shared, kSharedBytes);
  std::memset(metp::cuda::metp_shared, 0xff, bytes);
  if (!kWatched) {
    Poison(metp::cuda::metp_shared + bytes, kSharedBytes - bytes);
    return;
  }
  if (states_ == nullptr) {
    void* const mapped = mmap(nullptr, kSharedBytes + kCellBytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) {
      std::fprintf(stderr, "cuda emulation: no memory for the shadow of shared memory\n");
      std::abort();
    }
    states_ = static_cast<uint8_t*>(mapped);
    cells_ = reinterpret_cast<uint64_t*>(states_ + kSharedBytes);
  }
  if (open_ > bytes) std::memset(states_ + bytes, kOutside, open_ - bytes);
  std::memset(states_, kUnwritten, bytes);
  open_ = bytes;
  ForgetAccesses();
  here.shared_base = reinterpret_cast<uintptr_t>(metp::cuda::metp_shared);
  here.shared_bytes = static_cast<uint32_t>(bytes);
  here.shared_states = states_;
  here.shared_cells = cells_;
}

void SharedMemory::ForgetAccesses() {
  if (cells_ != nullptr) std::memset(cells_, 0, CellBytes(open_));
}

}  // namespace metp::emulation
