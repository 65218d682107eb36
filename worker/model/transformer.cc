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
      loss_tile_rows_(options.tile_rows) {
  attention_shape_ = {
      c_.h, c_.a, c_.g, c_.d, parameters.layout().groups(), options.tiled_attention, options.tile_rows};
  mlp_shape_ = {c_.h, c_.f, c_.llama ? Activation::kSwiGlu : Activation::kGelu, options.tile_rows};
}

Tensor Transformer::Rows(int64_t n, MemoryCategory category) const {
  return backend_.Allocate(n, c_.h, backend_.activation(), category);
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
  kept_.clear();

  gathered_ = attention.Prefetch(w.layers[0].attention);
  Tensor X = Rows(tokens.n, MemoryCategory::kActivations);
  EmbeddingForward(ring_, c_.V, w.wte, tokens.ids, /*accumulate=*/false, X);
  if (c_.max_positions > 0)
    EmbeddingForward(ring_, c_.max_positions, w.wpe, tokens.positions, /*accumulate=*/true, X);
  for (int l = 0; l < c_.layers; ++l) {
    Tensor next = ForwardLayer(l, attention, tokens, X);
    kept_.back().X = std::move(X);
    X = std::move(next);
  }

  Tensor dX = Rows(tokens.n, MemoryCategory::kTransient);
  {
    Tensor F = Rows(tokens.n, MemoryCategory::kTransient), dF = Rows(tokens.n, MemoryCategory::kTransient);
    Norm(X, w.nfw, w.nfb, F);
    Loss(ring_, {c_.V, loss_tile_rows_}, w.head, g.head, F, tokens.targets, counted, total, dF);
    backend_.Fill(dX, 0);
    NormBackward(X, w.nfw, dF, dX, g.nfw, g.nfb);
    X.Reset();
  }

  for (int l = c_.layers - 1; l >= 0; --l) BackwardLayer(l, attention, tokens, dX);
  if (c_.max_positions > 0) EmbeddingBackward(ring_, c_.max_positions, g.wpe, tokens.positions, dX);
  EmbeddingBackward(ring_, c_.V, g.wte, tokens.ids, dX);
}

Tensor Transformer::ForwardLayer(int l, AttentionUnit& attention, const TokenRows& tokens, const Matrix& X) {
  const LayerView& w = parameters_.weights().layers[l];
  Kept& kept = kept_.emplace_back();
  kept.O =
      backend_.Allocate(tokens.n, int64_t{c_.a} * c_.d, backend_.activation(), MemoryCategory::kActivations);
  kept.LSE = backend_.Allocate(tokens.n, c_.a, DType::kF32, MemoryCategory::kActivations);

  // Y, X2 and the next layer's X are one matrix: what a unit adds to the residual stream is added in place.
  Tensor Y = Rows(tokens.n, MemoryCategory::kActivations), N = Rows(tokens.n, MemoryCategory::kTransient);
  backend_.Copy(X, Y);
  if (!w.bo.empty()) backend_.AddBias(w.bo, Y);
  Norm(X, w.n1w, w.n1b, N);
  attention.Forward(w.attention, std::move(gathered_), N, kept.O, kept.LSE, Y);

  Norm(Y, w.n2w, w.n2b, N);
  if (!w.b2.empty()) backend_.AddBias(w.b2, Y);
  if (l + 1 < c_.layers) gathered_ = attention.Prefetch(parameters_.weights().layers[l + 1].attention);
  MlpForward(ring_, mlp_shape_, w.mlp, N, Y);
  return Y;
}

void Transformer::BackwardLayer(int l, AttentionUnit& attention, const TokenRows& tokens, const Matrix& dX) {
  const LayerView& w = parameters_.weights().layers[l];
  const LayerView& g = parameters_.gradients().layers[l];
  const Kept kept = std::move(kept_.back());
  kept_.pop_back();
  Tensor N = Rows(tokens.n, MemoryCategory::kTransient), dN = Rows(tokens.n, MemoryCategory::kTransient);

  {
    Tensor X2 = Rows(tokens.n, MemoryCategory::kTransient);
    backend_.Copy(kept.X, X2);
    if (!w.bo.empty()) backend_.AddBias(w.bo, X2);
    attention.OutputProjection(w.attention, kept.O, X2);
    Norm(X2, w.n2w, w.n2b, N);
    backend_.Fill(dN, 0);
    if (!g.b2.empty()) backend_.AddColumnSums(dX, g.b2);
    gathered_ = attention.Prefetch(w.attention);
    MlpBackward(ring_, mlp_shape_, w.mlp, g.mlp, N, dX, dN);
    NormBackward(X2, w.n2w, dN, dX, g.n2w, g.n2b);
  }

  Norm(kept.X, w.n1w, w.n1b, N);
  backend_.Fill(dN, 0);
  if (!g.bo.empty()) backend_.AddColumnSums(dX, g.bo);
  attention.Backward(w.attention, g.attention, std::move(gathered_), N, kept.O, kept.LSE, dX, dN);
  NormBackward(kept.X, w.n1w, dN, dX, g.n1w, g.n1b);
}

}  // namespace metp
