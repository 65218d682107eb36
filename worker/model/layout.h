#pragma once

// Where every parameter lives on a rank. Matrices are cut over ranks and lie in one arena, vectors are whole
// on every rank and lie in another; the optimizer, norms and sums run over whole arenas. Within the matrix
// arena each travelling shard is one contiguous block, so it is sent from where it lives:
//
//   layer l   per head group i:  [h/p, (a + 2g) d / c]  columns Wq_i | Wk_i | Wv_i
//                                [h/p, a d / c]         Wo_i transposed
//             MLP:               [h, inputs f/p]        W1_j | W3_j
//                                [f/p, h]               W2_j
//   tables    wte, wpe, head:    [V/p, h]
//
// Logical tensors keep their own names and shapes ("l3.wq", [h, a d], y = x W), whatever p and c are: Piece
// says which part of which logical tensor stands where. Everything that crosses the boundary (first values,
// gradients in tests, checkpoints) goes by pieces.

#include <cstdint>
#include <string>
#include <vector>

#include "worker/backend/tensor.h"
#include "worker/model/config.h"
#include "worker/model/tensor_slice.h"
#include "worker/ring/attention.h"
#include "worker/ring/mlp.h"
#include "worker/ring/partition.h"

namespace metp {

/// A rectangle of a logical tensor [rows, cols] and where it stands in an arena: element (i, j) of the whole
/// tensor, for i in `row` and j in `col`, is at offset + (i - row.begin) * row_stride + (j - col.begin) *
/// col_stride.
struct Piece {
  std::string name;
  int64_t rows = 0, cols = 0;  // of the whole; a vector is [1, size]
  Range row, col;
  bool matrix = true;  // in the matrix arena; otherwise in the vector arena
  int64_t offset = 0, row_stride = 0, col_stride = 1;
};

/// A slice and where it stands: element (i, j) of it at offset + i * row_stride + j * col_stride of its arena.
struct ArenaSlice {
  TensorSlice slice;
  bool matrix = true;
  int64_t offset = 0, row_stride = 0, col_stride = 1;
};

/// Views of one layer's parameters (or gradients) in a pair of arenas.
struct LayerView {
  AttentionParameters attention;
  MlpParameters mlp;
  Matrix n1w, n1b, n2w, n2b, bo, b2;  // [1, h]; empty where the family has none
};

struct ModelView {
  std::vector<LayerView> layers;
  Matrix wte, wpe, head;  // own rows; head is wte where tied
  Matrix nfw, nfb;
};

class ParameterLayout {
 public:
  ParameterLayout(const ModelConfig& config, int p, int rank, int head_groups);

  int64_t matrix_size() const { return matrix_size_; }
  int64_t vector_size() const { return vector_size_; }
  const std::vector<Piece>& pieces() const { return pieces_; }
  const std::vector<HeadGroup>& groups() const { return groups_; }

  /// Elements [own.begin, own.end) of the matrix arena as rectangles of logical tensors, and, where asked for, the vectors.
  std::vector<ArenaSlice> Slices(Range own, bool vectors) const;

  /// The parts of a pair of arenas, flat [1, matrix_size()] and [1, vector_size()].
  ModelView View(const Matrix& matrices, const Matrix& vectors) const;

 private:
  struct Layer {
    std::vector<int64_t> qkv, out_t;  // offsets, one per head group
    int64_t mlp = 0;
    int64_t n1w = -1, n1b = -1, n2w = -1, n2b = -1, bq = -1, bk = -1, bv = -1, bo = -1, b1 = -1, b2 = -1;
  };
  void AddLayer(int l);
  void AddAttention(const std::string& prefix, Layer& layer);
  void AddMlp(const std::string& prefix, Layer& layer);
  int64_t AddTable(const std::string& name, int64_t rows);
  int64_t AddVector(const std::string& name, int64_t size);

  const ModelConfig c_;
  const int p_, rank_;
  const std::vector<HeadGroup> groups_;
  const Range h_, f_;  // this rank's parts
  int64_t matrix_size_ = 0, vector_size_ = 0;
  std::vector<Piece> pieces_;
  std::vector<Layer> layers_;
  int64_t wte_ = 0, wpe_ = 0, head_ = 0, nfw_ = 0, nfb_ = -1;
};

}  // namespace metp
