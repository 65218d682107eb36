#pragma once

// Host side of the backend tests: matrices of doubles, and the way of one into a backend's memory and back,
// with whatever stride and type the case asks for. Everything passes through CopyFromHost and CopyToHost, so
// that a device works too.

#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <random>
#include <vector>

#include "worker/backend/backend.h"

namespace metp::testing {

/// Row-major doubles.
struct Host {
  int64_t rows = 0, cols = 0;
  std::vector<double> values;

  Host() = default;
  Host(int64_t n_rows, int64_t n_cols, double value = 0)
      : rows(n_rows), cols(n_cols), values(n_rows * n_cols, value) {}
  double& operator()(int64_t row, int64_t col) { return values[row * cols + col]; }
  double operator()(int64_t row, int64_t col) const { return values[row * cols + col]; }
  Host Rows(int64_t begin, int64_t end) const {
    Host out(end - begin, cols);
    std::copy(values.begin() + begin * cols, values.begin() + end * cols, out.values.begin());
    return out;
  }
};

/// Uniform in [low, high), each value an exact fp32.
inline Host Random(int64_t rows, int64_t cols, uint32_t seed, double low = -1, double high = 1) {
  Host out(rows, cols);
  std::mt19937 bits(seed);
  for (double& x : out.values) x = static_cast<float>(low + (high - low) * (bits() / 4294967296.0));
  return out;
}

inline float FromBf16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }
/// Rounds to nearest, ties to even; finite values only.
inline uint16_t ToBf16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
/// `x` as `type` holds it.
inline double Rounded(double x, DType type) {
  return type == DType::kF64 ? x : type == DType::kBF16 ? FromBf16(ToBf16(x)) : static_cast<float>(x);
}

/// What stands between the rows of a strided operand; a kernel that reads or writes past its columns shows.
inline constexpr double kPadding = -7777;

/// A matrix in a backend's memory, `pad` elements between its rows.
class Device {
 public:
  Device(Backend& backend, const Host& host, DType type, int64_t pad = 0)
      : backend_(&backend), pad_(pad), rows_(host.rows), cols_(host.cols), type_(type) {
    tensor_ = backend.Allocate(host.rows, host.cols + pad, type, MemoryCategory::kTransient);
    std::vector<char> bytes(tensor_.view().bytes());
    for (int64_t row = 0; row < rows_; ++row) {
      for (int64_t col = 0; col < cols_ + pad; ++col) {
        Put(bytes.data(), row * (cols_ + pad) + col, col < cols_ ? host(row, col) : kPadding);
      }
    }
    backend.CopyFromHost(bytes.data(), tensor_);
  }

  Matrix view() const { return tensor_.view().Block(0, rows_, 0, cols_); }
  operator Matrix() const { return view(); }  // NOLINT: used wherever a view of it is

  Host Get() const {
    const std::vector<char> bytes = Bytes();
    Host out(rows_, cols_);
    for (int64_t row = 0; row < rows_; ++row) {
      for (int64_t col = 0; col < cols_; ++col)
        out(row, col) = Value(bytes.data(), row * (cols_ + pad_) + col);
    }
    return out;
  }
  /// Whether everything between the rows is as it was.
  bool PaddingIntact() const {
    const std::vector<char> bytes = Bytes();
    for (int64_t row = 0; row < rows_; ++row) {
      for (int64_t col = cols_; col < cols_ + pad_; ++col) {
        if (Value(bytes.data(), row * (cols_ + pad_) + col) != Rounded(kPadding, type_)) return false;
      }
    }
    return true;
  }
  std::vector<char> Bytes() const {
    std::vector<char> bytes(tensor_.view().bytes());
    backend_->CopyToHost(tensor_, bytes.data());
    return bytes;
  }

 private:
  void Put(char* bytes, int64_t index, double value) const {
    switch (type_) {
      case DType::kF32:
        reinterpret_cast<float*>(bytes)[index] = static_cast<float>(value);
        break;
      case DType::kBF16:
        reinterpret_cast<uint16_t*>(bytes)[index] = ToBf16(static_cast<float>(value));
        break;
      case DType::kI32:
        reinterpret_cast<int32_t*>(bytes)[index] = static_cast<int32_t>(value);
        break;
      case DType::kF64:
        reinterpret_cast<double*>(bytes)[index] = value;
        break;
    }
  }
  double Value(const char* bytes, int64_t index) const {
    switch (type_) {
      case DType::kF32:
        return reinterpret_cast<const float*>(bytes)[index];
      case DType::kBF16:
        return FromBf16(reinterpret_cast<const uint16_t*>(bytes)[index]);
      case DType::kI32:
        return reinterpret_cast<const int32_t*>(bytes)[index];
      case DType::kF64:
        return reinterpret_cast<const double*>(bytes)[index];
    }
    return 0;
  }

  Backend* backend_;
  int64_t pad_, rows_, cols_;
  DType type_;
  Tensor tensor_;
};

}  // namespace metp::testing
