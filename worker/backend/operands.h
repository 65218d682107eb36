#pragma once

// What operations are given: views of device memory and plain parameters. Standard C++ only, so that a device's own
// compiler reads it too.

#include <cstdint>

namespace metp {

enum class DType : uint8_t { kF32, kBF16, kI32, kF64 };

constexpr int64_t SizeOf(DType type) { return type == DType::kBF16 ? 2 : type == DType::kF64 ? 8 : 4; }

/// A view of row-major [rows, cols] with `stride` elements from row to row: copied freely, owns nothing, never
/// dereferenced outside a backend (on a simulated device there is nothing behind it).
struct Matrix {
  void* data = nullptr;
  int64_t rows = 0, cols = 0, stride = 0;
  DType type = DType::kF32;

  bool empty() const { return rows == 0 || cols == 0; }
  bool contiguous() const { return stride == cols || rows <= 1; }
  int64_t size() const { return rows * cols; }
  int64_t bytes() const { return size() * SizeOf(type); }
  float* f32() const { return static_cast<float*>(data); }
  double* f64() const { return static_cast<double*>(data); }
  int32_t* i32() const { return static_cast<int32_t*>(data); }

  Matrix Block(int64_t row, int64_t n_rows, int64_t col, int64_t n_cols) const {
    Matrix m = *this;
    if (data != nullptr) m.data = static_cast<char*>(data) + (row * stride + col) * SizeOf(type);
    m.rows = n_rows;
    m.cols = n_cols;
    return m;
  }
  Matrix Rows(int64_t begin, int64_t end) const { return Block(begin, end - begin, 0, cols); }
  Matrix Cols(int64_t begin, int64_t end) const { return Block(0, rows, begin, end - begin); }
  /// The same contiguous elements, from element `offset` on, as [rows, cols].
  Matrix Reshape(int64_t offset, int64_t n_rows, int64_t n_cols) const {
    Matrix m = *this;
    if (data != nullptr) m.data = static_cast<char*>(data) + offset * SizeOf(type);
    m.rows = n_rows;
    m.cols = m.stride = n_cols;
    return m;
  }
};

enum class Transpose : bool { kNo, kYes };
enum class Norm { kLayerNorm, kRmsNorm };
enum class Activation { kGelu, kSwiGlu };

/// What the rows of a block see of its keys, where that is known without looking at `visible`.
enum class BlockMask : uint8_t {
  kPerRow,    // as `visible` says
  kDiagonal,  // as many keys as queries, of which row i sees the first i + 1
  kNone,      // every row sees every key
};

/// One rectangular block of attention: consecutive query rows against consecutive key rows of one sequence.
/// Query row i sees the keys whose global position is in [visible[i][0], visible[i][1]): a causal mask, a
/// document mask, both or neither. Query head x uses key/value head x * kv_heads / heads.
struct AttentionBlock {
  Matrix q;        // [nq, heads * d]
  Matrix k, v;     // [nk, kv_heads * d]
  Matrix visible;  // [nq, 2] int32
  BlockMask mask = BlockMask::kPerRow;
  int64_t key_position = 0;  // global position of k's first row; its rows are consecutive
  int heads = 0, kv_heads = 0, head_dim = 0;
  float scale = 0;  // 1 / sqrt d
  /// (query, key) row pairs that a causal mask leaves, documents not considered: what a cost model counts.
  int64_t pairs = 0;
  /// Empty: fused ("flash"), no scores in memory. Otherwise room for the scores ("tiled"), fp32:
  /// forward [heads * nq, nk], backward [2 * heads * nq, nk] (P and dP).
  Matrix scores;
};

struct AdamWStep {
  float learning_rate = 0, beta1 = 0, beta2 = 0, eps = 0;
  float weight_decay = 0;    // decoupled; 0 for vectors
  float correction1 = 0;     // 1 - beta1^step, step counting from 1
  float correction2 = 0;     // 1 - beta2^step
  float gradient_scale = 1;  // clipping
};

}  // namespace metp
