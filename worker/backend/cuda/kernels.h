#pragma once

// Every operation as launched on a stream: kernels and their launchers stand in the .cu file of their concern. Meanings,
// shapes and types are backend.h's; the caller (CudaBackend) has checked them. Operands may have any stride and any
// alignment of whole elements: rows that are aligned to 16 bytes are moved 16 bytes at a time, others element by element.
// Empty operands launch nothing. All throw StepError (cuda_error.h). Same call, same values: same bits.

#include <cuda_runtime.h>

#include <cstdint>

#include "worker/backend/operands.h"

namespace metp::cuda {

/// Device memory for partial sums; what one launch leaves there is used by the launches right behind it on the stream.
struct Scratch {
  float* data = nullptr;
  int64_t floats = 0;  // at least kScratchFloats
};
inline constexpr int64_t kScratchFloats = int64_t{1} << 21;  // 8 MiB

// elementwise.cu
void Fill(cudaStream_t stream, const Matrix& x, float value);          // fp32, bf16, fp64
void Copy(cudaStream_t stream, const Matrix& from, const Matrix& to);  // any two float types; same type: bits
void Add(cudaStream_t stream, const Matrix& x, const Matrix& to);      // any float types
void AddBias(cudaStream_t stream, const Matrix& bias, const Matrix& x);

// sums.cu
void AddColumnSums(cudaStream_t stream, Scratch scratch, const Matrix& x, const Matrix& sums);
void SumSquares(cudaStream_t stream, Scratch scratch, const Matrix& x, const Matrix& total);
void LossSum(cudaStream_t stream, Scratch scratch, const Matrix& lse, const Matrix& target_logit,
             const Matrix& targets, const Matrix& total);

// norm.cu
void NormForward(cudaStream_t stream, Norm norm, const Matrix& x, const Matrix& w, const Matrix& b, float eps,
                 const Matrix& y);
void NormBackward(cudaStream_t stream, Scratch scratch, Norm norm, const Matrix& x, const Matrix& w,
                  float eps, const Matrix& dy, const Matrix& dx, const Matrix& dw, const Matrix& db);

// rope.cu
void RopeTable(cudaStream_t stream, const Matrix& positions, double theta, const Matrix& table);
void Rope(cudaStream_t stream, const Matrix& table, bool inverse, const Matrix& x);

// activation.cu
void ActivationForward(cudaStream_t stream, Activation f, const Matrix& u, const Matrix& v, const Matrix& m);
void ActivationBackward(cudaStream_t stream, Activation f, const Matrix& u, const Matrix& v,
                        const Matrix& dm);

// embedding.cu
void EmbeddingGather(cudaStream_t stream, const Matrix& ids, int64_t first, const Matrix& table,
                     bool accumulate, const Matrix& x);
void EmbeddingScatterAdd(cudaStream_t stream, const Matrix& ids, int64_t first, const Matrix& dx,
                         const Matrix& d_table);

// loss.cu
void CrossEntropyForward(cudaStream_t stream, const Matrix& logits, const Matrix& targets, int64_t first,
                         const Matrix& lse, const Matrix& target_logit);
void CrossEntropyBackward(cudaStream_t stream, const Matrix& logits, const Matrix& targets, int64_t first,
                          const Matrix& lse, float scale);

// optimizer.cu
void AdamW(cudaStream_t stream, const AdamWStep& step, const Matrix& g, const Matrix& m, const Matrix& v,
           const Matrix& w);

// attention_delta.cu
void AttentionDelta(cudaStream_t stream, const Matrix& d_o, const Matrix& o, int head_dim,
                    const Matrix& delta);

// flash_f32_forward.cu, flash_f32_backward.cu: fused, on the FMA units.
// flash_bf16_forward.cu, flash_bf16_backward.cu: fused, on the tensor cores.
inline constexpr int kMostFlashHeadDim = 256;
void FlashForwardF32(cudaStream_t stream, const AttentionBlock& block, const Matrix& o, const Matrix& lse);
void FlashForwardBf16(cudaStream_t stream, const AttentionBlock& block, const Matrix& o, const Matrix& lse);
void FlashBackwardF32(cudaStream_t stream, Scratch scratch, const AttentionBlock& block, const Matrix& d_o,
                      const Matrix& lse, const Matrix& delta, const Matrix& dq, const Matrix& dk,
                      const Matrix& dv);
void FlashBackwardBf16(cudaStream_t stream, Scratch scratch, const AttentionBlock& block, const Matrix& d_o,
                       const Matrix& lse, const Matrix& delta, const Matrix& dq, const Matrix& dk,
                       const Matrix& dv);

// attention_merge.cu: between a library's dense results and blocks.
/// Merges part_o [n, heads * d] bf16 with its statistics part_lse [heads, n], all finite, into o and lse as
/// AttentionForward does.
void MergeAttention(cudaStream_t stream, const Matrix& part_o, const Matrix& part_lse, int head_dim,
                    const Matrix& o, const Matrix& lse);
/// to [heads, n] = from [n, heads], fp32.
void TransposeStatistics(cudaStream_t stream, const Matrix& from, const Matrix& to);

// tiled_softmax.cu: what is pointwise of attention over scores in memory; attention_tiled.cc does the products.
/// block.scores [heads * nq, nk] holds s = q k^T; they become p = e^(scale s - lse'), where lse' is what lse becomes with
/// this block merged in, zero where a row does not see a key; o's rows are scaled by e^(lse - lse'). Under bf16, p is
/// bf16 and lies at the start of each row of scores (so with a stride of 2 * scores.stride elements).
void TiledSoftmaxForward(cudaStream_t stream, const AttentionBlock& block, const Matrix& o,
                         const Matrix& lse);
/// Upper half of block.scores: s = q k^T, which becomes p = e^(scale s - lse). Lower half: dp = d_o v^T, which becomes
/// ds = p (dp - delta) scale. Zero where a row does not see a key, or its lse is -inf. Under bf16 both become bf16 as above.
void TiledSoftmaxBackward(cudaStream_t stream, const AttentionBlock& block, const Matrix& lse,
                          const Matrix& delta);

}  // namespace metp::cuda
