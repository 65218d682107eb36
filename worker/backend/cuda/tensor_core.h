#pragma once

// The tensor core's instructions that kernels use, each as a function. Names of fragments are PTX's (mma.m16n8k16: A is
// 16 x 16 by rows, B 16 x 8 by columns, C and D 16 x 8 fp32). Lane l of a warp holds, with g = l / 4 and t = l % 4:
//   a[0] A[g][2t, 2t+1]   a[1] A[g+8][2t..]   a[2] A[g][2t+8..]   a[3] A[g+8][2t+8..]      bf16 pairs, low half first
//   b[0] B[2t, 2t+1][g]   b[1] B[2t+8, 2t+9][g]
//   c[0] C[g][2t]  c[1] C[g][2t+1]  c[2] C[g+8][2t]  c[3] C[g+8][2t+1]
// All 32 lanes of the warp take part. (PTX ISA, "Warp Level Matrix Multiply-Accumulate Instructions".)

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace metp::cuda {

/// d += a b.
__device__ inline void MmaBf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// Four 8 x 8 matrices of bf16 from shared memory: lanes 8i..8i+7 name the rows (16 bytes each, aligned) of matrix i,
/// and r[i] of lane l becomes its elements [l / 4][2 (l % 4), + 1]; transposed: [2 (l % 4), + 1][l / 4].
__device__ inline void LoadMatrices(uint32_t (&r)[4], const __nv_bfloat16* row) {
  const uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}
__device__ inline void LoadMatricesTransposed(uint32_t (&r)[4], const __nv_bfloat16* row) {
  const uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

/// Two floats as a pair of bf16, to nearest even; `low` in the low half.
__device__ inline uint32_t PackBf16(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

/// 2^x to 2e-7 relative; what would be denormal is zero. One instruction, where exp2f takes four.
__device__ inline float Exp2(float x) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
}

/// Starts the copy of 16 bytes, both ends aligned; where not `valid`, zeros are written and `global` is not read.
/// In place only after CopyAsyncWait of its group and a barrier.
__device__ inline void CopyAsync16(void* shared, const void* global, bool valid) {
  const uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  const int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(address), "l"(global), "r"(bytes)
               : "memory");
}
/// Ends the thread's group of copies begun so far.
__device__ inline void CopyAsyncCommit() { asm volatile("cp.async.commit_group;" : : : "memory"); }
/// Waits until at most `kPending` of the thread's newest groups are still on their way.
template <int kPending>
__device__ inline void CopyAsyncWait() {
  asm volatile("cp.async.wait_group %0;" : : "n"(kPending) : "memory");
}

}  // namespace metp::cuda
