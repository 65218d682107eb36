#pragma once

// A Transformer's forward and backward pass over one micro-batch, as p ranks run it together: METP units in
// order, and between them only what a rank does with its own rows.
//
// Kept per layer (recompute `selective`): X, O, LSE. Everything else of the layer is made again in backward.

#include <memory>
#include <vector>

#include "worker/model/batch.h"
#include "worker/model/parameters.h"
#include "worker/ring/attention.h"
#include "worker/ring/ring.h"

namespace metp {

struct TransformerOptions {
  bool tiled_attention = false;
  int64_t tile_rows = 0;  // 0: whole
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
  struct Kept {
    Tensor X;    // [n, h], what entered the layer
    Tensor O;    // [n, a d]
    Tensor LSE;  // [n, a]
  };

  Tensor Rows(int64_t n, MemoryCategory category) const;
  void Norm(const Matrix& x, const Matrix& w, const Matrix& b, const Matrix& y);
  void NormBackward(const Matrix& x, const Matrix& w, const Matrix& dy, const Matrix& dx, const Matrix& dw,
                    const Matrix& db);
  Tensor ForwardLayer(int l, AttentionUnit& attention, const TokenRows& tokens, const Matrix& X);
  void BackwardLayer(int l, AttentionUnit& attention, const TokenRows& tokens, const Matrix& dX);

  Ring& ring_;
  Backend& backend_;
  const ModelConfig c_;
  Parameters& parameters_;
  AttentionShape attention_shape_;
  MlpShape mlp_shape_;
  int64_t loss_tile_rows_;
  std::vector<Kept> kept_;
  std::shared_ptr<WeightGather> gathered_;  // the next layer's first head group, a pass ahead
};

}  // namespace metp
