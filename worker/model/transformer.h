#pragma once

// A Transformer's forward and backward pass over one micro-batch, as p ranks run it together: METP units in
// order, and between them only what a rank does with its own rows.
//
// What a layer keeps from forward to backward, and what backward then makes again:
//   kNone        X, Q, K, V, O, LSE, X2   the MLP's inside
//   kSelective   X, O, LSE                also X2 (O times Wo) and Q, K, V; never attention
//   kFull        X                        also attention
// The residual stream and its inner gradients are summed in fp32 (ring/attention.h); what is kept, and what
// goes from layer to layer, has the activations' type.

#include <memory>
#include <vector>

#include "worker/model/batch.h"
#include "worker/model/kept.h"
#include "worker/model/parameters.h"
#include "worker/ring/attention.h"
#include "worker/ring/ring.h"

namespace metp {

enum class Recompute { kNone, kSelective, kFull };

struct TransformerOptions {
  bool tiled_attention = false;
  int64_t tile_rows = 0;  // 0: whole
  Recompute recompute = Recompute::kSelective;
  bool offload_activations = false;  // what layers keep goes to host memory (kept.h)
};

class Transformer {
 public:
  /// All must outlive the transformer.
  Transformer(Ring& ring, const ModelConfig& config, Parameters& parameters, TransformerOptions options);

  /// Adds the micro-batch's gradients to the parameters' (complete after Ring::Drain; replicated vectors hold
  /// this rank's part only, until they are summed over ranks) and its sum of losses to `total` ([1, 1] fp64,
  /// this rank's part). `counted`: counted targets of the global batch. Throws StepError.
  void ForwardBackward(const TokenRows& tokens, int64_t counted, const Matrix& total);

 private:
  Tensor Rows(int64_t n, MemoryCategory category) const;
  Tensor WideRows(int64_t n, MemoryCategory category) const;  // fp32
  void AllocateAttentionResult(int64_t n, MemoryCategory category, KeptLayer& kept) const;
  void Norm(const Matrix& x, const Matrix& w, const Matrix& b, const Matrix& y);
  void NormBackward(const Matrix& x, const Matrix& w, const Matrix& dy, const Matrix& dx, const Matrix& dw,
                    const Matrix& db);
  /// X2 = X + bias, to which attention is added.
  Tensor StartResidual(const Matrix& X, const LayerView& w, MemoryCategory category);
  /// What the next layer gets. Fills what `kept` must hold beside X.
  Tensor ForwardLayer(int l, AttentionUnit& attention, const TokenRows& tokens, const Matrix& X,
                      KeptLayer& kept);
  /// The layer's X2, and with kFull its O and LSE, again; N, [n, h], is free for use.
  void RestoreAttention(const LayerView& w, AttentionUnit& attention, KeptLayer& kept, const Matrix& N);
  /// fp32 rows as rows of the activations' type; with fp32 activations themselves.
  Tensor Narrowed(Tensor wide, MemoryCategory category);
  void BackwardLayer(int l, AttentionUnit& attention, const TokenRows& tokens, const Matrix& dX);

  Ring& ring_;
  Backend& backend_;
  const ModelConfig c_;
  Parameters& parameters_;
  const Recompute recompute_;
  AttentionShape attention_shape_;
  MlpShape mlp_shape_;
  int64_t loss_tile_rows_;
  KeptLayers kept_;
  std::shared_ptr<WeightGather> gathered_;  // the next layer's first head group, a pass ahead
};

}  // namespace metp
