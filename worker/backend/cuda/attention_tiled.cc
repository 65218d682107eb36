// Query heads that share a key/value head take turns; in each turn one batched product serves all key/value heads, so that
// what several query heads add to one dK or dV is added in a fixed order.

#include "worker/backend/cuda/attention_tiled.h"

#include "worker/backend/cuda/kernels.h"

namespace metp::cuda {
namespace {

/// One operand of a batched product: its matrix in the first of the batch, elements from one to the next.
struct Batched {
  Matrix first;
  int64_t step;
};

class Heads {
 public:
  /// The views that turn `turn` uses.
  Heads(const AttentionBlock& block, int turn)
      : b_(block), turn_(turn), shared_by_(block.heads / block.kv_heads), d_(block.head_dim) {}

  /// Columns of a [nq, heads * d] matrix.
  Batched Query(const Matrix& x) const { return {x.Cols(turn_ * d_, (turn_ + 1) * d_), shared_by_ * d_}; }
  /// Columns of a [nk, kv_heads * d] matrix.
  Batched Key(const Matrix& x) const { return {x.Cols(0, d_), d_}; }
  /// Rows of the scores' upper half (0) or lower half (1), fp32.
  Batched Scores(int half) const {
    const int64_t nq = b_.q.rows, row = (int64_t{half} * b_.heads + turn_) * nq;
    return {b_.scores.Rows(row, row + nq), shared_by_ * nq * b_.scores.stride};
  }
  /// What the softmax left there, in the type of activations.
  Batched Probabilities(int half) const {
    Batched x = Scores(half);
    if (b_.q.type == DType::kBF16) {
      x.first.type = DType::kBF16;
      x.first.stride *= 2;
      x.step *= 2;
    }
    return x;
  }
  Product Of(float beta, const Batched& a, Transpose ta, const Batched& b, Transpose tb,
             const Batched& c) const {
    return {1, a.first, ta, b.first, tb, beta, c.first, b_.kv_heads, a.step, b.step, c.step};
  }

 private:
  const AttentionBlock& b_;
  const int64_t turn_, shared_by_, d_;
};

constexpr auto kNo = Transpose::kNo, kYes = Transpose::kYes;

}  // namespace

void TiledForward(cudaStream_t stream, Products& products, const AttentionBlock& block, const Matrix& o,
                  const Matrix& lse) {
  const int turns = block.heads / block.kv_heads;
  for (int turn = 0; turn < turns; ++turn) {
    const Heads x(block, turn);
    products.Run(x.Of(0, x.Query(block.q), kNo, x.Key(block.k), kYes, x.Scores(0)));
  }
  TiledSoftmaxForward(stream, block, o, lse);
  for (int turn = 0; turn < turns; ++turn) {
    const Heads x(block, turn);
    products.Run(x.Of(1, x.Probabilities(0), kNo, x.Key(block.v), kNo, x.Query(o)));
  }
}

void TiledBackward(cudaStream_t stream, Products& products, const AttentionBlock& block, const Matrix& d_o,
                   const Matrix& lse, const Matrix& delta, const Matrix& dq, const Matrix& dk,
                   const Matrix& dv) {
  const int turns = block.heads / block.kv_heads;
  for (int turn = 0; turn < turns; ++turn) {
    const Heads x(block, turn);
    products.Run(x.Of(0, x.Query(block.q), kNo, x.Key(block.k), kYes, x.Scores(0)));
    products.Run(x.Of(0, x.Query(d_o), kNo, x.Key(block.v), kYes, x.Scores(1)));
  }
  TiledSoftmaxBackward(stream, block, lse, delta);
  for (int turn = 0; turn < turns; ++turn) {
    const Heads x(block, turn);
    products.Run(x.Of(1, x.Probabilities(0), kYes, x.Query(d_o), kNo, x.Key(dv)));
    products.Run(x.Of(1, x.Probabilities(1), kNo, x.Key(block.k), kNo, x.Query(dq)));
    products.Run(x.Of(1, x.Probabilities(1), kYes, x.Query(block.q), kNo, x.Key(dk)));
  }
}

}  // namespace metp::cuda
