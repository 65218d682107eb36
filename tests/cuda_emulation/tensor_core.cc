// The emulated tensor core and the copies of 16 bytes that a kernel starts and waits for later. Runs on the fibers of
// device threads; fragments are those that the real header describes.

#include "worker/backend/cuda/tensor_core.h"

#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <utility>
#include <vector>

#include "tests/cuda_emulation/engine.h"

namespace metp::emulation {
namespace {

constexpr int kRegisters = 6;  // of an exchanged MMA fragment: a[0..3], b0, b1

float LowBf16(uint32_t pair) { return std::bit_cast<float>(pair << 16); }
float HighBf16(uint32_t pair) { return std::bit_cast<float>(pair & 0xffff0000u); }

/// The calling thread's number in its block; warps are made of 32 each.
size_t ThreadNumber() {
  const uint3 thread = threadIdx;
  return thread.x + size_t{blockDim.x} * (thread.y + size_t{blockDim.y} * thread.z);
}

/// The fragments of all lanes of a warp, as WarpExchange gives them.
class Fragments {
 public:
  explicit Fragments(const unsigned char* lanes) : lanes_(lanes) {}
  uint32_t At(int lane, int reg) const {
    uint32_t value;
    std::memcpy(&value, lanes_ + (static_cast<size_t>(lane) * kRegisters + static_cast<size_t>(reg)) * 4, 4);
    return value;
  }

 private:
  const unsigned char* lanes_;
};

/// sum over k of A[row][k] B[k][column], row of 16, column of 8. A product of two bf16 is exact in fp32.
float Dot(const Fragments& warp, int row, int column) {
  float sum = 0;
  for (int half = 0; half < 2; ++half) {  // k from 8 * half on
    for (int t = 0; t < 4; ++t) {
      const uint32_t a = warp.At(4 * (row % 8) + t, 2 * half + row / 8);
      const uint32_t b = warp.At(4 * column + t, 4 + half);
      sum += LowBf16(a) * LowBf16(b) + HighBf16(a) * HighBf16(b);
    }
  }
  return sum;
}

/// Copies on their way, of one device thread: groups that were ended, the oldest first, then the one that is not.
struct CopyGroups {
  uint3 block = {};
  std::deque<std::deque<AsyncCopy>> ended;
  std::deque<AsyncCopy> open;
};

/// The calling device thread's. A host thread runs one block at a time; what an earlier block left is forgotten.
CopyGroups& MyCopies() {
  thread_local std::vector<CopyGroups> of_threads;
  const uint3 block = blockIdx;
  const size_t number = ThreadNumber();
  if (of_threads.size() <= number) of_threads.resize(number + 1);
  CopyGroups& mine = of_threads[number];
  if (mine.block.x != block.x || mine.block.y != block.y || mine.block.z != block.z) mine = {block, {}, {}};
  return mine;
}

}  // namespace

void WarpMma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  const uint32_t mine[kRegisters] = {a[0], a[1], a[2], a[3], b0, b1};
  const Fragments warp(WarpExchange(mine, sizeof(mine)));
  const int lane = static_cast<int>(ThreadNumber() % 32), group = lane / 4, t = lane % 4;
  for (int i = 0; i < 4; ++i) d[i] += Dot(warp, group + 8 * (i / 2), 2 * t + i % 2);
}

void WarpMatrices(uint32_t (&r)[4], Vector16 row, bool transposed) {
  const unsigned char* const rows = WarpExchange(&row, sizeof(row));
  const int lane = static_cast<int>(ThreadNumber() % 32), group = lane / 4, t = lane % 4;
  for (int matrix = 0; matrix < 4; ++matrix) {
    uint16_t pair[2];
    for (int i = 0; i < 2; ++i) {
      const int at_row = transposed ? 2 * t + i : group, at_column = transposed ? group : 2 * t + i;
      std::memcpy(&pair[i], rows + (8 * matrix + at_row) * 16 + at_column * 2, 2);
    }
    r[matrix] = pair[0] | static_cast<uint32_t>(pair[1]) << 16;
  }
}

void BeginCopy(AsyncCopy copy) { MyCopies().open.push_back(copy); }

void EndCopyGroup() {
  CopyGroups& mine = MyCopies();
  mine.ended.push_back(std::move(mine.open));
  mine.open.clear();
}

AsyncCopy TakeCopy(int pending) {
  auto& ended = MyCopies().ended;
  while (ended.size() > static_cast<size_t>(pending)) {
    if (!ended.front().empty()) {
      const AsyncCopy copy = ended.front().front();
      ended.front().pop_front();
      return copy;
    }
    ended.pop_front();
  }
  return {};
}

void CheckAligned16(const void* at, const char* what) {
  if (reinterpret_cast<uintptr_t>(at) % 16 == 0) return;
  std::fprintf(stderr, "%s an address that is not aligned to 16 bytes: %p\n", what, at);
  std::abort();
}

}  // namespace metp::emulation

namespace metp::cuda {

uint32_t PackBf16(float low, float high) {
  const auto round = [](float x) -> uint32_t {
    const uint32_t bits = std::bit_cast<uint32_t>(x);
    if (x != x) return 0x7fff;
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  };
  return round(low) | round(high) << 16;
}

}  // namespace metp::cuda
