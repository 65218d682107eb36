#pragma once

// Device memory as the engine sees it. Matrix is a view: copied freely, owns nothing, never dereferenced
// outside a backend (on a simulated device there is nothing behind it). Tensor owns its memory and gives it
// back, through the ledger, when it goes out of scope. Both belong to one rank and are used from its compute
// thread.

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "worker/telemetry/ledger.h"

namespace metp {

enum class DType : uint8_t { kF32, kBF16, kI32, kF64 };

constexpr int64_t SizeOf(DType type) { return type == DType::kBF16 ? 2 : type == DType::kF64 ? 8 : 4; }

/// Row-major [rows, cols] with `stride` elements from row to row.
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

class Backend;

class Tensor {
 public:
  Tensor() = default;
  Tensor(Tensor&& other) noexcept { *this = std::move(other); }
  Tensor& operator=(Tensor&& other) noexcept {
    std::swap(owner_, other.owner_);
    std::swap(view_, other.view_);
    std::swap(category_, other.category_);
    std::swap(tag_, other.tag_);
    return *this;
  }
  ~Tensor() { Reset(); }
  /// Gives the memory back now.
  void Reset();

  const Matrix& view() const { return view_; }
  operator const Matrix&() const { return view_; }  // NOLINT: a tensor is used wherever a view of it is
  const Matrix* operator->() const { return &view_; }

 private:
  friend class Backend;
  Backend* owner_ = nullptr;
  Matrix view_;
  MemoryCategory category_ = MemoryCategory::kTransient;
  std::string tag_;
};

}  // namespace metp
