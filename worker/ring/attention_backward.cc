#include "worker/ring/accumulators.h"
#include "worker/ring/attention.h"

namespace metp {

std::shared_ptr<WeightGather> AttentionUnit::Backward(const AttentionParameters& weights,
                                                      const AttentionParameters& gradients,
                                                      std::shared_ptr<WeightGather> first, const Saved& saved,
                                                      const Matrix& dY, const Matrix& dN,
                                                      const AttentionParameters* then) {
  const Matrix &N = saved.N, &O = saved.O, &LSE = saved.LSE;
  const bool kept = saved.projections != nullptr;
  const int64_t n = tokens_.n, d = shape_.d;
  std::shared_ptr<WeightGather> gathered = std::move(first);
  for (size_t i = 0; i < shape_.groups.size(); ++i) {
    const HeadGroup& group = shape_.groups[i];
    const int64_t wq = group.q.size() * d, wk = group.kv.size() * d;
    const Range q_cols = {group.q.begin * d, group.q.end * d},
                kv_cols = {group.kv.begin * d, group.kv.end * d};
    ring_.Finish(Pass::kAttentionBackward, *gathered);
    std::shared_ptr<WeightGather> next = Gather(weights, i + 1);
    if (next == nullptr && then != nullptr) next = Gather(*then, 0);

    const Matrix o = O.Cols(q_cols.begin, q_cols.end), lse = LSE.Cols(group.q.begin, group.q.end);
    ProjectedGroup projected;
    Tensor d_o, delta, dq, d_kv;
    ring_.Compute(Pass::kAttentionBackward, [&] {
      projected = kept ? std::move((*saved.projections)[i]) : Project(weights, *gathered, group, N, false);
      d_o = backend_.Allocate(n, wq, backend_.activation(), MemoryCategory::kTransient);
      delta = backend_.Allocate(n, group.q.size(), DType::kF32, MemoryCategory::kTransient);
      dq = backend_.Allocate(n, wq, DType::kF32, MemoryCategory::kTransient);
      d_kv = backend_.Allocate(1, tokens_.MaxRows() * 2 * wk, DType::kF32, MemoryCategory::kRing);
      backend_.Gemm(1, dY, Transpose::kNo, gathered->out_t(), Transpose::kNo, 0, d_o);
      backend_.AttentionDelta(d_o, o, shape_.d, delta);
      backend_.Fill(dq, 0);
      backend_.Fill(d_kv, 0);
    });

    // K, V travel again, the sums of their gradients one step behind.
    auto kv = Travel(projected, group, kept);
    auto sums = std::make_shared<TravellingAccumulators>(ring_, d_kv, KvSizes(group));
    ring_.Board(sums);
    const Tensor scores = Scores(group, 2);
    for (int t = 0; t < ring_.size(); ++t) {
      ring_.Step(Pass::kAttentionBackward, [&] {
        const int64_t source_rows = tokens_.RowsOf(kv->shard());
        const Matrix source = kv->current().Reshape(0, source_rows, 2 * wk);
        const Matrix sum = sums->contribution().Reshape(0, source_rows, 2 * wk);
        if (sums->beta() == 0) backend_.Fill(sum, 0);
        for (const Pair& pair : Pairs(kv->shard())) {
          const Matrix d_source = sum.Rows(pair.source.row, pair.source.row + pair.source.rows());
          for (Range tile : RowTiles(pair.own.rows(), shape_.tiled ? shape_.tile_rows : 0)) {
            const Range rows = {pair.own.row + tile.begin, pair.own.row + tile.end};
            backend_.AttentionBackward(Block(group, projected.q, source, pair, rows, scores, 2),
                                       d_o->Rows(rows.begin, rows.end), o.Rows(rows.begin, rows.end),
                                       lse.Rows(rows.begin, rows.end), delta->Rows(rows.begin, rows.end),
                                       dq->Rows(rows.begin, rows.end), d_source.Cols(0, wk),
                                       d_source.Cols(wk, 2 * wk));
          }
        }
      });
    }

    // The sums' home hop hides behind everything that needs dQ and dY alone.
    const Matrix w = gathered->qkv();
    auto scatter = std::make_shared<GradientScatter>(ring_, gradients.groups[i], shape_.h);
    const float beta = scatter->beta();
    ring_.Step(Pass::kAttentionHome, [&] {
      if (!tokens_.rope->empty()) backend_.Rope(tokens_.rope, true, dq);
      backend_.Gemm(1, dY, Transpose::kYes, o, Transpose::kNo, beta, scatter->out_t());
      const Matrix operand = AsOperand(dq, d_o);
      backend_.Gemm(1, N, Transpose::kYes, operand, Transpose::kNo, beta, scatter->qkv().Cols(0, wq));
      backend_.Gemm(1, operand, Transpose::kNo, w.Cols(0, wq), Transpose::kYes, 1, dN);
      if (!gradients.bq.empty()) backend_.AddColumnSums(dq, gradients.bq.Cols(q_cols.begin, q_cols.end));
    });
    ring_.Compute(Pass::kAttentionHome, [&] {
      const Matrix own = d_kv->Reshape(0, n, 2 * wk);
      if (!tokens_.rope->empty()) backend_.Rope(tokens_.rope, true, own.Cols(0, wk));
      const Matrix operand = AsOperand(own, projected.kv->Reshape(0, n, 2 * wk));
      backend_.Gemm(1, N, Transpose::kYes, operand, Transpose::kNo, beta,
                    scatter->qkv().Cols(wq, wq + 2 * wk));
      backend_.Gemm(1, operand, Transpose::kNo, w.Cols(wq, wq + 2 * wk), Transpose::kYes, 1, dN);
      if (!gradients.bk.empty()) {
        backend_.AddColumnSums(own.Cols(0, wk), gradients.bk.Cols(kv_cols.begin, kv_cols.end));
        backend_.AddColumnSums(own.Cols(wk, 2 * wk), gradients.bv.Cols(kv_cols.begin, kv_cols.end));
      }
    });
    ring_.Board(std::move(scatter));
    gathered = std::move(next);
  }
  return gathered;
}

}  // namespace metp
