#pragma once

// The memory behind a layout on one rank. Matrices: the weights that compute reads and the gradients, whole; the fp32
// masters and AdamW's moments of this rank's own elements only (data-parallel rings share them out), on the device
// or on the host. Where compute is in fp32 and the masters stay on the device, the weights are the masters. Vectors:
// everything, fp32, on every rank.

#include <functional>
#include <optional>
#include <vector>

#include "worker/backend/backend.h"
#include "worker/model/host_state.h"
#include "worker/model/layout.h"

namespace metp {

struct StateOptions {
  std::optional<Range> own;  // elements of the matrix arena whose state is kept here; all
  bool on_host = false;
};

class Parameters {
 public:
  Parameters(Backend& backend, const ParameterLayout& layout, const StateOptions& options = {});

  const ParameterLayout& layout() const { return layout_; }
  /// What compute reads: matrices of the backend's activation type.
  const ModelView& weights() const { return weight_view_; }
  const ModelView& gradients() const { return gradient_view_; }
  /// The matrices of the two, flat, [1, layout().matrix_size()], and the gradients' vectors.
  const Matrix& weight_matrices() const { return weights_; }
  const Matrix& gradient_matrices() const { return gradients_; }
  const Matrix& gradient_vectors() const { return vectors_[kGradients]; }
  Range own() const { return own_; }

  void ZeroGradients();
  /// One AdamW update of the own elements, and of the vectors, by their gradients. The weights of elements that are
  /// not own stay as they were.
  void Update(const AdamWStep& matrices, const AdamWStep& vectors);

  /// Sets every weight to value(piece, i, j), (i, j) counting over the whole logical tensor.
  void Import(const std::function<float(const Piece&, int64_t, int64_t)>& value);
  enum What { kMasters, kGradients, kFirstMoments, kSecondMoments };
  /// Copies of the own elements and of the vectors, [own().size()] and [layout().vector_size()], in host memory; and
  /// back. Masters are set for the rank's whole share, [layout().matrix_size()]: compute reads all of it. Nothing on a
  /// backend that holds no data.
  struct Copy {
    std::vector<float> matrices, vectors;
  };
  Copy CopyOf(What what) const;
  void SetMasters(const Copy& whole);
  void SetMoments(What what, const Copy& own);
  /// Reads the own elements and the vectors back: visit(piece, i, j, value) for each.
  void Export(What what, const std::function<void(const Piece&, int64_t, int64_t, float)>& visit) const;

 private:
  void ImportMatrices(const float* values);
  Matrix Own(const Matrix& flat) const { return flat.Cols(own_.begin, own_.end); }

  Backend& backend_;
  const ParameterLayout layout_;
  const Range own_;
  Tensor weights_, gradients_;
  Tensor state_[4];    // by What, own elements; empty for gradients, and where the state is not here
  Tensor vectors_[4];  // by What
  std::optional<HostState> host_;
  ModelView weight_view_, gradient_view_;
};

/// The first values of training: norm weights 1, biases 0, matrices from a normal of standard deviation 0.02,
/// those that write into the residual stream (wo, w2) 0.02 / sqrt(2 L). Every value depends on seed, tensor
/// name and global index alone, so it is the same for any p and c.
void InitializeWeights(Parameters& parameters, const ModelConfig& config, uint64_t seed);

}  // namespace metp
