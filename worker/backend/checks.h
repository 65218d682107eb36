#pragma once

// What callers of a backend must get right. A mismatch is a programming error: the process ends with the name of the
// operation and what it expects. `activation` is the backend's; where an operand may have that type or fp32 it is `Wide`.

#include "worker/backend/operands.h"

namespace metp {

/// Ends the process when `ok` is false: `what` names the operation and what it expects.
void Require(bool ok, const char* what);

inline bool Has(const Matrix& m, DType type, int64_t rows, int64_t cols) {
  return m.type == type && m.rows == rows && m.cols == cols;
}
inline bool SameShape(const Matrix& a, const Matrix& b) { return a.rows == b.rows && a.cols == b.cols; }
inline bool IsF32(const Matrix& m, int64_t rows, int64_t cols) { return Has(m, DType::kF32, rows, cols); }
inline bool Wide(const Matrix& m, DType activation) { return m.type == DType::kF32 || m.type == activation; }

void RequireAddBias(DType activation, const Matrix& bias, const Matrix& x);
void RequireAddColumnSums(DType activation, const Matrix& x, const Matrix& sums);
void RequireGemm(DType activation, const Matrix& a, Transpose ta, const Matrix& b, Transpose tb, float beta,
                 const Matrix& c);
void RequireAttentionForward(DType activation, const AttentionBlock& block, const Matrix& o,
                             const Matrix& lse);
void RequireAttentionDelta(DType activation, const Matrix& d_o, const Matrix& o, int head_dim,
                           const Matrix& delta);
void RequireAttentionBackward(DType activation, const AttentionBlock& block, const Matrix& d_o,
                              const Matrix& o, const Matrix& lse, const Matrix& delta, const Matrix& dq,
                              const Matrix& dk, const Matrix& dv);
void RequireNormForward(DType activation, const Matrix& x, const Matrix& w, const Matrix& b, const Matrix& y);
void RequireNormBackward(DType activation, const Matrix& x, const Matrix& w, const Matrix& dy,
                         const Matrix& dx, const Matrix& dw, const Matrix& db);
void RequireRopeTable(const Matrix& positions, const Matrix& table);
void RequireRope(DType activation, const Matrix& table, const Matrix& x);
/// Also for the backward operation, `m` being dm.
void RequireActivation(DType activation, Activation f, const Matrix& u, const Matrix& v, const Matrix& m);
void RequireEmbeddingGather(DType activation, const Matrix& ids, const Matrix& table, const Matrix& x);
void RequireEmbeddingScatterAdd(DType activation, const Matrix& ids, const Matrix& dx, const Matrix& d_table);
void RequireCrossEntropyForward(DType activation, const Matrix& logits, const Matrix& targets,
                                const Matrix& lse, const Matrix& target_logit);
void RequireCrossEntropyBackward(DType activation, const Matrix& logits, const Matrix& targets,
                                 const Matrix& lse);
void RequireLossSum(const Matrix& lse, const Matrix& target_logit, const Matrix& targets,
                    const Matrix& total);
void RequireSumSquares(const Matrix& x, const Matrix& total);
void RequireAdamW(const Matrix& g, const Matrix& m, const Matrix& v, const Matrix& w);

}  // namespace metp
