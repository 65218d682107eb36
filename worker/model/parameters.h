#pragma once

// The memory behind a layout on one rank: weights, gradients, AdamW moments, each a matrix arena and a vector
// arena.

#include <functional>
#include <string>

#include "worker/backend/backend.h"
#include "worker/model/layout.h"

namespace metp {

struct Arenas {
  Tensor matrices, vectors;  // flat fp32
};

class Parameters {
 public:
  Parameters(Backend& backend, const ParameterLayout& layout);

  const ParameterLayout& layout() const { return layout_; }
  /// What compute reads: matrices of the backend's activation type.
  const ModelView& weights() const { return weight_view_; }
  const ModelView& gradients() const { return gradient_view_; }
  /// The fp32 weights that training updates; PublishWeights makes compute see a change.
  Arenas& weight_arenas() { return weights_; }
  Arenas& gradient_arenas() { return gradients_; }
  Arenas& first_moments() { return first_; }
  Arenas& second_moments() { return second_; }

  void ZeroGradients();
  /// Where compute is not in fp32, casts the weights into the copy that it reads.
  void PublishWeights();

  /// Sets every weight to value(piece, i, j), (i, j) counting over the whole logical tensor.
  void Import(const std::function<float(const Piece&, int64_t, int64_t)>& value);
  /// Reads this rank's part of a set of arenas back: visit(piece, i, j, value) for every element.
  void Export(const Arenas& arenas,
              const std::function<void(const Piece&, int64_t, int64_t, float)>& visit) const;

 private:
  Backend& backend_;
  const ParameterLayout layout_;
  Arenas weights_, gradients_, first_, second_;
  Tensor compute_matrices_;  // empty in fp32: compute reads the weights themselves
  ModelView weight_view_, gradient_view_;
};

/// The first values of training: norm weights 1, biases 0, matrices from a normal of standard deviation 0.02,
/// those that write into the residual stream (wo, w2) 0.02 / sqrt(2 L). Every value depends on seed, tensor
/// name and global index alone, so it is the same for any p and c.
void InitializeWeights(Parameters& parameters, const ModelConfig& config, uint64_t seed);

}  // namespace metp
