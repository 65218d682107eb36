#include "worker/model/transformer.h"

#include "worker/ring/embedding.h"
#include "worker/ring/loss.h"
#include "worker/ring/mlp.h"

namespace metp {

Transformer::Transformer(Ring& ring, const ModelConfig& config, Parameters& parameters,
                         TransformerOptions options)
    : ring_(ring),
      backend_(ring.backend()),
      c_(config),
      parameters_(parameters),
      recompute_(options.recompute),
      loss_tile_rows_(options.tile_rows),
      kept_(ring.backend(), options.offload_activations) {
  attention_shape_ = {
      c_.h, c_.a, c_.g, c_.d, parameters.layout().groups(), options.tiled_attention, options.tile_rows};
  mlp_shape_ = {c_.h, c_.f, c_.llama ? Activation::kSwiGlu : Activation::kGelu, options.tile_rows};
}

Tensor Transformer::Rows(int64_t n, MemoryCategory category) const {
  return backend_.Allocate(n, c_.h, backend_.activation(), category);
}

Tensor Transformer::WideRows(int64_t n, MemoryCategory category) const {
  return backend_.Allocate(n, c_.h, DType::kF32, category);
}

void Transformer::AllocateAttentionResult(int64_t n, MemoryCategory category, KeptLayer& kept) const {
  kept.O = backend_.Allocate(n, int64_t{c_.a} * c_.d, backend_.activation(), category);
  kept.LSE = backend_.Allocate(n, c_.a, DType::kF32, category);
}

void Transformer::Norm(const Matrix& x, const Matrix& w, const Matrix& b, const Matrix& y) {
  backend_.NormForward(c_.llama ? Norm::kRmsNorm : Norm::kLayerNorm, x, w, b, static_cast<float>(c_.eps), y);
}

void Transformer::NormBackward(const Matrix& x, const Matrix& w, const Matrix& dy, const Matrix& dx,
                               const Matrix& dw, const Matrix& db) {
  backend_.NormBackward(c_.llama ? Norm::kRmsNorm : Norm::kLayerNorm, x, w, static_cast<float>(c_.eps), dy,
                        dx, dw, db);
}

void Transformer::ForwardBackward(const TokenRows& tokens, int64_t counted, const Matrix& total) {
  const ModelView& w = parameters_.weights();
  const ModelView& g = parameters_.gradients();
  AttentionUnit attention(ring_, attention_shape_, tokens);
  kept_.Clear();

  gathered_ = attention.Prefetch(w.layers[0].attention);
  Tensor X = Rows(tokens.n, MemoryCategory::kActivations);
  EmbeddingForward(ring_, c_.V, w.wte, tokens.ids, /*accumulate=*/false, X);
  if (c_.max_positions > 0)
    EmbeddingForward(ring_, c_.max_positions, w.wpe, tokens.positions, /*accumulate=*/true, X);
  for (int l = 0; l < c_.layers; ++l) {
    KeptLayer kept;
    Tensor next = ForwardLayer(l, attention, tokens, X, kept);
    kept.X = std::move(X);
    kept_.Push(std::move(kept), l + 1 == c_.layers);
    X = std::move(next);
  }

  Tensor dX = Rows(tokens.n, MemoryCategory::kTransient);
  {
    Tensor F = Rows(tokens.n, MemoryCategory::kTransient),
           dF = WideRows(tokens.n, MemoryCategory::kTransient);
    Norm(X, w.nfw, w.nfb, F);
    if (recompute_ == Recompute::kFull) gathered_ = attention.Prefetch(w.layers.back().attention);
    Loss(ring_, {c_.V, loss_tile_rows_}, w.head, g.head, F, tokens.targets, counted, total, dF);
    backend_.Fill(dX, 0);
    NormBackward(X, w.nfw, dF, dX, g.nfw, g.nfb);
    X.Reset();
  }

  for (int l = c_.layers - 1; l >= 0; --l) BackwardLayer(l, attention, tokens, dX);
  if (c_.max_positions > 0) EmbeddingBackward(ring_, c_.max_positions, g.wpe, tokens.positions, dX);
  EmbeddingBackward(ring_, c_.V, g.wte, tokens.ids, dX);
}

Tensor Transformer::StartResidual(const Matrix& X, const LayerView& w, MemoryCategory category) {
  Tensor X2 = WideRows(X.rows, category);
  backend_.Copy(X, X2);
  if (!w.bo.empty()) backend_.AddBias(w.bo, X2);
  return X2;
}

Tensor Transformer::ForwardLayer(int l, AttentionUnit& attention, const TokenRows& tokens, const Matrix& X,
                                 KeptLayer& kept) {
  const LayerView& w = parameters_.weights().layers[l];
  const bool keep_all = recompute_ == Recompute::kNone;
  AllocateAttentionResult(
      tokens.n, recompute_ == Recompute::kFull ? MemoryCategory::kTransient : MemoryCategory::kActivations,
      kept);

  // Y, X2 and the next layer's X are one matrix: what a unit adds to the residual stream is added in place.
  Tensor Y = StartResidual(X, w, MemoryCategory::kActivations);
  Tensor N = Rows(tokens.n, MemoryCategory::kTransient);
  Norm(X, w.n1w, w.n1b, N);
  attention.Forward(w.attention, std::move(gathered_), N, kept.O, kept.LSE, Y,
                    keep_all ? &kept.projections : nullptr);
  if (recompute_ == Recompute::kFull) kept = {};
  if (keep_all) {
    kept.X2 = Rows(tokens.n, MemoryCategory::kActivations);
    backend_.Copy(Y, kept.X2);
  }

  Norm(Y, w.n2w, w.n2b, N);
  if (!w.b2.empty()) backend_.AddBias(w.b2, Y);
  if (l + 1 < c_.layers) gathered_ = attention.Prefetch(parameters_.weights().layers[l + 1].attention);
  MlpForward(ring_, mlp_shape_, w.mlp, N, Y);
  N.Reset();
  return Narrowed(std::move(Y), MemoryCategory::kActivations);
}

Tensor Transformer::Narrowed(Tensor wide, MemoryCategory category) {
  if (backend_.activation() == DType::kF32) return wide;
  Tensor narrow = Rows(wide->rows, category);
  backend_.Copy(wide, narrow);
  return narrow;
}

void Transformer::RestoreAttention(const LayerView& w, AttentionUnit& attention, KeptLayer& kept,
                                   const Matrix& N) {
  if (recompute_ == Recompute::kNone) return;
  Tensor X2 = StartResidual(kept.X, w, MemoryCategory::kTransient);
  if (recompute_ == Recompute::kSelective) {
    attention.OutputProjection(w.attention, kept.O, X2);
  } else {
    AllocateAttentionResult(kept.X->rows, MemoryCategory::kTransient, kept);
    Norm(kept.X, w.n1w, w.n1b, N);
    attention.Forward(w.attention, std::move(gathered_), N, kept.O, kept.LSE, X2);
  }
  kept.X2 = Narrowed(std::move(X2), MemoryCategory::kTransient);
}

void Transformer::BackwardLayer(int l, AttentionUnit& attention, const TokenRows& tokens, const Matrix& dX) {
  const LayerView& w = parameters_.weights().layers[l];
  const LayerView& g = parameters_.gradients().layers[l];
  KeptLayer kept = kept_.Pop();
  Tensor N = Rows(tokens.n, MemoryCategory::kTransient);
  RestoreAttention(w, attention, kept, N);

  Tensor dN = WideRows(tokens.n, MemoryCategory::kTransient);
  Norm(kept.X2, w.n2w, w.n2b, N);
  backend_.Fill(dN, 0);
  if (!g.b2.empty()) backend_.AddColumnSums(dX, g.b2);
  gathered_ = attention.Prefetch(w.attention);
  MlpBackward(ring_, mlp_shape_, w.mlp, g.mlp, N, dX, dN);
  NormBackward(kept.X2, w.n2w, dN, dX, g.n2w, g.n2b);
  kept.X2.Reset();

  Norm(kept.X, w.n1w, w.n1b, N);
  backend_.Fill(dN, 0);
  if (!g.bo.empty()) backend_.AddColumnSums(dX, g.bo);
  const AttentionParameters* then =
      recompute_ == Recompute::kFull && l > 0 ? &parameters_.weights().layers[l - 1].attention : nullptr;
  gathered_ = attention.Backward(
      w.attention, g.attention, std::move(gathered_),
      {N, kept.O, kept.LSE, recompute_ == Recompute::kNone ? &kept.projections : nullptr}, dX, dN, then);
  NormBackward(kept.X, w.n1w, dN, dX, g.n1w, g.n1b);
}

}  // namespace metp
