#pragma once

// The MLP unit: Y += f(N W1_j [, N W3_j]) W2_j, the weight shards j travelling. Only one tile of f(.) exists
// at a time, [tile_rows, f/p], and backward computes it again. Source: metp.md, section 3; tests/reference,
// metp_mlp*.

#include "worker/ring/ring.h"

namespace metp {

struct MlpShape {
  int64_t h = 0, f = 0;
  Activation activation = Activation::kGelu;
  int64_t tile_rows = 0;                                                    // 0: all rows at once
  int inputs() const { return activation == Activation::kSwiGlu ? 2 : 1; }  // matrices before f
  /// Elements per hidden unit of a shard: its columns of W1 (and W3) and its row of W2.
  int64_t width() const { return (inputs() + 1) * h; }
};

/// One layer's MLP on this rank, or its gradients.
struct MlpParameters {
  Matrix shard;  // flat: [W1_j | W3_j] as [h, inputs f/p], then W2_j as [f/p, h]
  Matrix b1;     // [1, f], whole; empty without biases
};

/// Y [n, h] += MLP(N [n, h]).
void MlpForward(Ring& ring, const MlpShape& shape, const MlpParameters& weights, const Matrix& N,
                const Matrix& Y);

/// dN += gradient; weight gradients are added to `gradients`: the shard's sum is home after the first step of
/// the next pass.
void MlpBackward(Ring& ring, const MlpShape& shape, const MlpParameters& weights,
                 const MlpParameters& gradients, const Matrix& N, const Matrix& dY, const Matrix& dN);

}  // namespace metp
