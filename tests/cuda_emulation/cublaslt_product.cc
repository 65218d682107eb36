// The emulated cuBLASLt's product: operands are read line by line (a column where the order is by columns, else a row), sums
// are kept in double and rounded once.

#include "tests/cuda_emulation/cublaslt_product.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <vector>

#include "tests/cuda_emulation/engine.h"

namespace metp::emulation {
namespace {

const char* LineAt(const void* data, const Layout& m, int64_t matrix, int64_t line) {
  return static_cast<const char*>(data) + (matrix * m.step + line * m.ld) * m.element_bytes();
}

float Element(const char* line, const Layout& m, int64_t i) {
  if (m.type == CUDA_R_32F) {
    float x;
    std::memcpy(&x, line + 4 * i, 4);
    return x;
  }
  uint16_t half;
  std::memcpy(&half, line + 2 * i, 2);
  return std::bit_cast<float>(static_cast<uint32_t>(half) << 16);
}

void SetElement(char* line, const Layout& m, int64_t i, float x) {
  if (m.type == CUDA_R_32F) {
    std::memcpy(line + 4 * i, &x, 4);
    return;
  }
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const auto half = static_cast<uint16_t>(x != x ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  std::memcpy(line + 2 * i, &half, 2);
}

/// A matrix of the batch as [outer][inner] floats; `by_rows`: outer counts the rows of op(m), else its columns.
std::vector<float> Load(const void* data, const Layout& m, int64_t matrix, int32_t transpose, bool by_rows) {
  std::vector<float> loaded(static_cast<size_t>(m.rows * m.cols));
  const bool lines_are_rows = (m.order == CUBLASLT_ORDER_ROW) == (transpose == CUBLAS_OP_N);  // of op(m)
  const int64_t outer = lines_are_rows == by_rows ? m.length() : 1,
                inner = lines_are_rows == by_rows ? 1 : m.lines();
  for (int64_t line = 0; line < m.lines(); ++line) {
    const char* const from = LineAt(data, m, matrix, line);
    Read(from, static_cast<size_t>(m.length() * m.element_bytes()));
    for (int64_t i = 0; i < m.length(); ++i)
      loaded[static_cast<size_t>(line * outer + i * inner)] = Element(from, m, i);
  }
  return loaded;
}

constexpr int64_t kPanel = 8;
using Sums = std::array<double, kPanel>;

/// a [k] times kPanel columns, each [k], of which those beyond the last are its copies.
Sums Dots(const float* a, const std::array<const float*, kPanel>& columns, int64_t k) {
  Sums sums = {};
  for (int64_t i = 0; i < k; ++i) {
    for (size_t j = 0; j < kPanel; ++j) sums[j] += static_cast<double>(a[i]) * columns[j][i];
  }
  return sums;
}

/// alpha op(a) op(b) as [m][n].
std::vector<double> Multiply(const Product& x, int64_t matrix) {
  const std::vector<float> a = Load(x.a, x.a_layout, matrix, x.desc.transpose_a, true);   // [m][k]
  const std::vector<float> b = Load(x.b, x.b_layout, matrix, x.desc.transpose_b, false);  // [n][k]
  const auto m = static_cast<int64_t>(x.d_layout.rows), n = static_cast<int64_t>(x.d_layout.cols);
  const auto k = static_cast<int64_t>(a.size()) / m;
  std::vector<double> product(static_cast<size_t>(m * n));
  for (int64_t column = 0; column < n; column += kPanel) {
    std::array<const float*, kPanel> columns;
    for (int64_t j = 0; j < kPanel; ++j)
      columns[static_cast<size_t>(j)] = b.data() + std::min(column + j, n - 1) * k;
    for (int64_t row = 0; row < m; ++row) {
      const Sums sums = Dots(a.data() + row * k, columns, k);
      for (int64_t j = 0; j < std::min(kPanel, n - column); ++j) {
        product[static_cast<size_t>(row * n + column + j)] = x.alpha * sums[static_cast<size_t>(j)];
      }
    }
  }
  return product;
}

}  // namespace

void RunProduct(const Product& x) {
  if (x.workspace_bytes > 0) {
    Write(x.workspace, x.workspace_bytes);
    std::memset(x.workspace, 0xff, x.workspace_bytes);
  }
  const Layout &c = x.c_layout, &d = x.d_layout;
  const bool by_rows = d.order == CUBLASLT_ORDER_ROW;
  for (int64_t matrix = 0; matrix < d.batch; ++matrix) {
    const std::vector<double> product = Multiply(x, matrix);
    for (int64_t line = 0; line < d.lines(); ++line) {
      const char* const from = LineAt(x.c, c, matrix, line);
      char* const to = const_cast<char*>(LineAt(x.d, d, matrix, line));
      const auto bytes = static_cast<size_t>(d.length() * d.element_bytes());
      if (x.beta != 0) Read(from, bytes);
      Write(to, bytes);
      for (int64_t i = 0; i < d.length(); ++i) {
        const int64_t at = by_rows ? line * d.length() + i : i * d.lines() + line;
        double sum = product[static_cast<size_t>(at)];
        if (x.beta != 0) sum += static_cast<double>(x.beta) * Element(from, c, i);
        SetElement(to, d, i, static_cast<float>(sum));
      }
    }
  }
}

}  // namespace metp::emulation
