#include "worker/backend/checks.h"

#include <cstdio>
#include <cstdlib>

namespace metp {
namespace {

bool IsColumn(const Matrix& m, DType type, int64_t n) { return Has(m, type, n, 1); }
bool IsTotal(const Matrix& m) { return m.type == DType::kF64 && m.size() == 1; }

void RequireBlock(DType activation, const AttentionBlock& b) {
  const int64_t nq = b.q.rows, nk = b.k.rows, d = b.head_dim;
  Require(b.head_dim > 0 && b.kv_heads > 0 && b.heads > 0 && b.heads % b.kv_heads == 0,
          "attention expects heads to be a multiple of kv_heads, and a head_dim");
  Require(Has(b.q, activation, nq, b.heads * d) && Has(b.k, activation, nk, b.kv_heads * d) &&
              Has(b.v, activation, nk, b.kv_heads * d),
          "attention expects q [nq, heads * d] and k, v [nk, kv_heads * d] of the activation type");
  Require(Has(b.visible, DType::kI32, nq, 2), "attention expects int32 visible [nq, 2]");
}

}  // namespace

void Require(bool ok, const char* what) {
  if (ok) return;
  std::fprintf(stderr, "backend: %s\n", what);
  std::abort();
}

void RequireAddBias(DType activation, const Matrix& bias, const Matrix& x) {
  Require(IsF32(bias, 1, x.cols) && Wide(x, activation),
          "AddBias expects fp32 bias [1, cols] and x of fp32 or the activation type");
}

void RequireAddColumnSums(DType activation, const Matrix& x, const Matrix& sums) {
  Require(IsF32(sums, 1, x.cols) && Wide(x, activation),
          "AddColumnSums expects fp32 sums [1, cols] and x of fp32 or the activation type");
}

void RequireGemm(DType activation, const Matrix& a, Transpose ta, const Matrix& b, Transpose tb, float beta,
                 const Matrix& c) {
  const int64_t k = ta == Transpose::kYes ? a.rows : a.cols;
  Require((ta == Transpose::kYes ? a.cols : a.rows) == c.rows &&
              (tb == Transpose::kYes ? b.rows : b.cols) == c.cols &&
              (tb == Transpose::kYes ? b.cols : b.rows) == k,
          "Gemm expects op(a) [m, k], op(b) [k, n], c [m, n]");
  Require(a.type == activation && b.type == activation && Wide(c, activation),
          "Gemm expects a and b of the activation type, c of it or fp32");
  Require(beta == 0 || beta == 1, "Gemm expects beta 0 or 1");
}

void RequireAttentionForward(DType activation, const AttentionBlock& block, const Matrix& o,
                             const Matrix& lse) {
  RequireBlock(activation, block);
  const int64_t nq = block.q.rows, nk = block.k.rows;
  Require(IsF32(o, nq, int64_t{block.heads} * block.head_dim) && IsF32(lse, nq, block.heads),
          "AttentionForward expects fp32 o [nq, heads * d] and lse [nq, heads]");
  Require(block.scores.empty() || IsF32(block.scores, block.heads * nq, nk),
          "AttentionForward expects fp32 scores [heads * nq, nk]");
}

void RequireAttentionDelta(DType activation, const Matrix& d_o, const Matrix& o, int head_dim,
                           const Matrix& delta) {
  Require(
      SameShape(d_o, o) && d_o.type == activation && Wide(o, activation) && head_dim > 0 &&
          o.cols % head_dim == 0 && IsF32(delta, o.rows, o.cols / head_dim),
      "AttentionDelta expects d_o, o [n, heads * d] of the activation type (o may be fp32) and fp32 delta "
      "[n, heads]");
}

void RequireAttentionBackward(DType activation, const AttentionBlock& block, const Matrix& d_o,
                              const Matrix& o, const Matrix& lse, const Matrix& delta, const Matrix& dq,
                              const Matrix& dk, const Matrix& dv) {
  RequireBlock(activation, block);
  const int64_t nq = block.q.rows, nk = block.k.rows, heads = block.heads, d = block.head_dim;
  Require(Has(d_o, activation, nq, heads * d) && IsF32(lse, nq, heads) && IsF32(delta, nq, heads) &&
              IsF32(dq, nq, heads * d) && IsF32(dk, nk, block.kv_heads * d) &&
              IsF32(dv, nk, block.kv_heads * d),
          "AttentionBackward expects d_o [nq, heads * d] of the activation type, fp32 dq [nq, heads * d], "
          "lse, delta "
          "[nq, heads], dk, dv [nk, kv_heads * d]");
  Require(o.empty() || (SameShape(o, d_o) && Wide(o, activation)),
          "AttentionBackward expects o [nq, heads * d] of the activation type or fp32, or none");
  Require(block.scores.empty() || IsF32(block.scores, 2 * heads * nq, nk),
          "AttentionBackward expects fp32 scores [2 * heads * nq, nk]");
}

void RequireNormForward(DType activation, const Matrix& x, const Matrix& w, const Matrix& b,
                        const Matrix& y) {
  Require(SameShape(x, y) && Wide(x, activation) && y.type == activation && IsF32(w, 1, x.cols) &&
              (b.empty() || IsF32(b, 1, x.cols)),
          "NormForward expects x [n, h] of fp32 or the activation type, y [n, h] of the latter and fp32 w, b "
          "[1, h]");
}

void RequireNormBackward(DType activation, const Matrix& x, const Matrix& w, const Matrix& dy,
                         const Matrix& dx, const Matrix& dw, const Matrix& db) {
  const int64_t h = x.cols;
  Require(SameShape(dy, x) && SameShape(dx, x) && Wide(x, activation) && Wide(dy, activation) &&
              Wide(dx, activation) && IsF32(w, 1, h) && IsF32(dw, 1, h) && (db.empty() || IsF32(db, 1, h)),
          "NormBackward expects x, dy, dx [n, h] of fp32 or the activation type and fp32 w, dw, db [1, h]");
}

void RequireRopeTable(const Matrix& positions, const Matrix& table) {
  Require(IsColumn(positions, DType::kI32, table.rows) && table.type == DType::kF32 && table.cols % 2 == 0,
          "RopeTable expects int32 positions [n, 1] and an fp32 table [n, d], d even");
}

void RequireRope(DType activation, const Matrix& table, const Matrix& x) {
  const int64_t d = table.cols;
  Require(IsF32(table, x.rows, d) && Wide(x, activation) && d > 0 && d % 2 == 0 && x.cols % d == 0,
          "Rope expects an fp32 table [n, d], d even, and x [n, heads * d] of fp32 or the activation type");
}

void RequireActivation(DType activation, Activation f, const Matrix& u, const Matrix& v, const Matrix& m) {
  Require(Has(u, activation, m.rows, m.cols) && m.type == activation &&
              (f != Activation::kSwiGlu || Has(v, activation, m.rows, m.cols)),
          "activation functions expect operands of one shape and of the activation type");
}

void RequireEmbeddingGather(DType activation, const Matrix& ids, const Matrix& table, const Matrix& x) {
  Require(IsColumn(ids, DType::kI32, x.rows) && Has(x, activation, x.rows, table.cols) &&
              table.type == activation,
          "EmbeddingGather expects int32 ids [n, 1], table [rows, h] and x [n, h] of the activation type");
}

void RequireEmbeddingScatterAdd(DType activation, const Matrix& ids, const Matrix& dx,
                                const Matrix& d_table) {
  Require(IsColumn(ids, DType::kI32, dx.rows) && Wide(dx, activation) && dx.cols == d_table.cols &&
              d_table.type == DType::kF32,
          "EmbeddingScatterAdd expects int32 ids [n, 1], dx [n, h] of fp32 or the activation type and fp32 "
          "d_table "
          "[rows, h]");
}

void RequireCrossEntropyForward(DType activation, const Matrix& logits, const Matrix& targets,
                                const Matrix& lse, const Matrix& target_logit) {
  const int64_t n = logits.rows;
  Require(Wide(logits, activation) && IsColumn(targets, DType::kI32, n) && IsColumn(lse, DType::kF32, n) &&
              IsColumn(target_logit, DType::kF32, n),
          "CrossEntropyForward expects logits [m, cols] of fp32 or the activation type, int32 targets, fp32 "
          "lse and "
          "target_logit [m, 1]");
}

void RequireCrossEntropyBackward(DType activation, const Matrix& logits, const Matrix& targets,
                                 const Matrix& lse) {
  const int64_t n = logits.rows;
  Require(Wide(logits, activation) && IsColumn(targets, DType::kI32, n) && IsColumn(lse, DType::kF32, n),
          "CrossEntropyBackward expects logits [m, cols] of fp32 or the activation type, int32 targets and "
          "fp32 lse "
          "[m, 1]");
}

void RequireLossSum(const Matrix& lse, const Matrix& target_logit, const Matrix& targets,
                    const Matrix& total) {
  const int64_t n = lse.rows;
  Require(IsColumn(lse, DType::kF32, n) && IsColumn(target_logit, DType::kF32, n) &&
              IsColumn(targets, DType::kI32, n) && IsTotal(total),
          "LossSum expects fp32 lse, target_logit and int32 targets [m, 1], and an fp64 total [1, 1]");
}

void RequireSumSquares(const Matrix& x, const Matrix& total) {
  Require(x.type == DType::kF32 && IsTotal(total), "SumSquares expects fp32 x and an fp64 total [1, 1]");
}

void RequireAdamW(const Matrix& g, const Matrix& m, const Matrix& v, const Matrix& w) {
  Require(IsF32(g, w.rows, w.cols) && IsF32(m, w.rows, w.cols) && IsF32(v, w.rows, w.cols) &&
              IsF32(w, w.rows, w.cols),
          "AdamW expects fp32 operands of one shape");
}

}  // namespace metp
