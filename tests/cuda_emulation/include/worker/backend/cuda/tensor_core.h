#pragma once

// Stands in for worker/backend/cuda/tensor_core.h on the emulated device: the same functions, lanes exchanging their
// fragments through the engine. What touches device memory stands here, in line, so that the kernel's instrumentation sees
// it; the rest is in tensor_core.cc, which is not instrumented.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cmath>
#include <cstddef>
#include <cstdint>

namespace metp::emulation {

/// 16 bytes that one thread moves in one access, of whatever type.
using Vector16 [[gnu::vector_size(16), gnu::may_alias]] = uint32_t;

/// d += a b over the warp, lane by lane the fragments of mma.m16n8k16.
void WarpMma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);
/// ldmatrix.x4; `row` is what stands in the row that the lane named.
void WarpMatrices(uint32_t (&r)[4], Vector16 row, bool transposed);

/// A copy on its way; zeros are written where `from` is null.
struct AsyncCopy {
  Vector16* to = nullptr;
  const Vector16* from = nullptr;
};
/// Copies of the calling device thread, kept until it waits for them.
void BeginCopy(AsyncCopy copy);
void EndCopyGroup();
/// The oldest copy in a group older than the `pending` newest ones, forgotten here; `to` is null when none is left.
AsyncCopy TakeCopy(int pending);

/// Ends the process unless `at` is aligned to 16 bytes.
void CheckAligned16(const void* at, const char* what);

}  // namespace metp::emulation

namespace metp::cuda {

inline void MmaBf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  emulation::WarpMma(d, a, b0, b1);
}

inline void LoadMatrices(uint32_t (&r)[4], const __nv_bfloat16* row) {
  emulation::CheckAligned16(row, "LoadMatrices");
  emulation::WarpMatrices(r, *reinterpret_cast<const emulation::Vector16*>(row), false);
}
inline void LoadMatricesTransposed(uint32_t (&r)[4], const __nv_bfloat16* row) {
  emulation::CheckAligned16(row, "LoadMatricesTransposed");
  emulation::WarpMatrices(r, *reinterpret_cast<const emulation::Vector16*>(row), true);
}

uint32_t PackBf16(float low, float high);

inline float Exp2(float x) {
  const float power = std::exp2(x);
  return power < 0x1p-126f ? 0.0f : power;
}

/// The device may write at any time from here to the wait. So the place is written here too, with NaN, which a reader that
/// is not ordered races with and one that does not wait gets; the copy itself is made as late as may be, by the wait.
inline void CopyAsync16(void* shared, const void* global, bool valid) {
  emulation::CheckAligned16(shared, "CopyAsync16 to");
  if (valid) emulation::CheckAligned16(global, "CopyAsync16 from");
  auto* const to = static_cast<emulation::Vector16*>(shared);
  *to = emulation::Vector16{} - 1;  // all bits set
  emulation::BeginCopy({to, valid ? static_cast<const emulation::Vector16*>(global) : nullptr});
}
inline void CopyAsyncCommit() { emulation::EndCopyGroup(); }
template <int kPending>
inline void CopyAsyncWait() {
  for (auto copy = emulation::TakeCopy(kPending); copy.to != nullptr; copy = emulation::TakeCopy(kPending)) {
    *copy.to = copy.from == nullptr ? emulation::Vector16{} : *copy.from;
  }
}

}  // namespace metp::cuda
