// Additions, sums, products of matrices, norms, rotary positions, activations.

#include <limits>

#include "tests/worker/backend/conformance.h"

namespace metp::testing {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Host Transposed(const Host& x) {
  Host out(x.cols, x.rows);
  for (int64_t i = 0; i < x.rows; ++i) {
    for (int64_t j = 0; j < x.cols; ++j) out(j, i) = x(i, j);
  }
  return out;
}

std::vector<double> NormRow(Norm norm, const std::vector<double>& x, const Host& w, const Host& b,
                            double eps) {
  const size_t h = x.size();
  double mean = 0, square = 0;
  if (norm == Norm::kLayerNorm) {
    for (double v : x) mean += v / h;
  }
  for (double v : x) square += (v - mean) * (v - mean) / h;
  std::vector<double> y(h);
  for (size_t i = 0; i < h; ++i) {
    y[i] = (x[i] - mean) / std::sqrt(square + eps) * w(0, i) + (b.cols > 0 ? b(0, i) : 0);
  }
  return y;
}

std::vector<double> RowOf(const Host& x, int64_t row) {
  return {x.values.begin() + row * x.cols, x.values.begin() + (row + 1) * x.cols};
}

double Silu(double u) { return u / (1 + std::exp(-u)); }
double Gelu(double u) {
  return 0.5 * u * (1 + std::tanh(0.79788456080286535588 * (u + 0.044715 * u * u * u)));
}
/// Central difference in double: independent of anybody's derivation.
double Slope(double (*f)(double), double u) { return (f(u + 1e-5) - f(u - 1e-5)) / 2e-5; }

}  // namespace

TEST_P(BackendConformance, AddAddsToWhatIsThere) {
  for (auto [rows, cols] : OddShapes()) {
    for (int64_t pad : {0, 3}) {
      Host x = Random(rows, cols, 11);
      const Host to = Random(rows, cols, 12);
      const Device source = Activation(x, pad), target = F32(to, pad);
      backend().Add(source, target);
      Host expected(rows, cols);
      for (size_t i = 0; i < x.values.size(); ++i) expected.values[i] = x.values[i] + to.values[i];
      ExpectNear(target, expected);
      ExpectNear(source, x, 0);
    }
  }
}

TEST_P(BackendConformance, AddBiasAddsOneRowToAll) {
  for (auto [rows, cols] : OddShapes()) {
    for (DType type : WideTypes()) {
      Host x = Random(rows, cols, 13);
      const Host bias = Random(1, cols, 14);
      const Device target = Of(type, x, 1);
      backend().AddBias(F32(bias), target);
      Host expected = x;
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < cols; ++j) expected(i, j) += bias(0, j);
      }
      ExpectNear(target, expected);
    }
  }
}

TEST_P(BackendConformance, AddColumnSumsAddsEveryRow) {
  for (auto [rows, cols] : OddShapes()) {
    for (DType type : WideTypes()) {
      Host x = Random(rows, cols, 15);
      const Host sums = Random(1, cols, 16);
      const Device target = F32(sums);
      backend().AddColumnSums(Of(type, x, 2), target);
      Host expected = sums;
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < cols; ++j) expected(0, j) += x(i, j);
      }
      ExpectNear(target, expected);
    }
  }
}

TEST_P(BackendConformance, SumSquaresAddsInDoublePrecision) {
  for (auto [rows, cols] : OddShapes()) {
    for (int64_t pad : {0, 1}) {
      const Host x = Random(rows, cols, 17);
      const Device total(backend(), Host(1, 1, 2.5), DType::kF64);
      backend().SumSquares(F32(x, pad), total);
      double expected = 2.5;
      for (double v : x.values) expected += v * v;
      EXPECT_NEAR(total.Get()(0, 0), expected, 1e-12 * expected);
    }
  }
  const Device total(backend(), Host(1, 1), DType::kF64);
  backend().SumSquares(F32(Host(1, 3, 1e30)), total);  // squares far beyond fp32
  EXPECT_NEAR(total.Get()(0, 0), 3e60, 1e54);
}

TEST_P(BackendConformance, GemmTransposesScalesAndAccumulates) {
  const int64_t shapes[][3] = {{1, 1, 1},    {1, 7, 5},      {5, 1, 3},    {3, 4, 0},
                               {0, 4, 3},    {4, 0, 3},      {17, 33, 9},  {64, 31, 65},
                               {1, 300, 70}, {130, 140, 90}, {260, 100, 1}};
  for (const auto& [m, n, k] : shapes) {
    for (Transpose ta : {Transpose::kNo, Transpose::kYes}) {
      for (Transpose tb : {Transpose::kNo, Transpose::kYes}) {
        for (float beta : {0.0f, 1.0f}) {
          Host a = Random(m, k, 21), b = Random(k, n, 22);
          Host a_stored = ta == Transpose::kYes ? Transposed(a) : a,
               b_stored = tb == Transpose::kYes ? Transposed(b) : b;
          const Host c = beta == 0 ? Host(m, n, kNan) : Random(m, n, 23);  // with beta 0 nobody reads c
          const Device da = Activation(a_stored, 3), db = Activation(b_stored, 1), dc = F32(c, 2);
          a = ta == Transpose::kYes ? Transposed(a_stored) : a_stored;
          b = tb == Transpose::kYes ? Transposed(b_stored) : b_stored;
          backend().Gemm(0.75f, da, ta, db, tb, beta, dc);
          Host expected(m, n);
          for (int64_t i = 0; i < m; ++i) {
            for (int64_t j = 0; j < n; ++j) {
              double sum = 0;
              for (int64_t l = 0; l < k; ++l) sum += a(i, l) * b(l, j);
              expected(i, j) = 0.75 * sum + (beta == 0 ? 0 : c(i, j));
            }
          }
          ExpectNear(dc, expected);
        }
      }
    }
  }
}

TEST_P(BackendConformance, NormForwardNormalisesRows) {
  for (Norm norm : {Norm::kLayerNorm, Norm::kRmsNorm}) {
    for (auto [rows, cols] : OddShapes()) {
      Host x = Random(rows, cols, 31, -1, 3);
      const Host w = Random(1, cols, 32), b = norm == Norm::kLayerNorm ? Random(1, cols, 33) : Host();
      const Device dx = Activation(x, 2), dw = F32(w), db = F32(b);
      Host zero(rows, cols);
      const Device y = Activation(zero, 1);
      const Matrix bias = norm == Norm::kLayerNorm ? db.view() : Matrix{};
      backend().NormForward(norm, dx, dw, bias, 1e-5f, y);
      Host expected(rows, cols);
      for (int64_t i = 0; i < rows; ++i) {
        const std::vector<double> row = NormRow(norm, RowOf(x, i), w, b, 1e-5);
        std::copy(row.begin(), row.end(), expected.values.begin() + i * cols);
      }
      ExpectNear(y, expected);
      Host wide = x;
      backend().NormForward(norm, Of(DType::kF32, wide, 3), dw, bias, 1e-5f, y);
      ExpectNear(y, expected);
      backend().NormForward(norm, dx, dw, bias, 1e-5f, dx);  // in place
      ExpectNear(dx, expected);
    }
  }
}

TEST_P(BackendConformance, NormBackwardMatchesFiniteDifferences) {
  for (Norm norm : {Norm::kLayerNorm, Norm::kRmsNorm}) {
    for (auto [rows, cols] :
         std::vector<std::pair<int64_t, int64_t>>{{0, 8}, {1, 1}, {1, 7}, {3, 17}, {5, 64}, {600, 33}}) {
      Host x = Random(rows, cols, 34, -1, 3), dy = Random(rows, cols, 35);
      const Host w = Random(1, cols, 36, 0.5, 1.5), b(norm == Norm::kLayerNorm ? 1 : 0, cols);
      const Host dx0 = Random(rows, cols, 37), dw0 = Random(1, cols, 38), db0 = Random(1, cols, 39);
      const Device x_in = Activation(x, 1), dy_in = Activation(dy, 2);
      const Device dx = F32(dx0, 3), dw = F32(dw0), db = F32(db0);
      const bool has_bias = norm == Norm::kLayerNorm;
      backend().NormBackward(norm, x_in, F32(w), 1e-2f, dy_in, dx, dw, has_bias ? db.view() : Matrix{});
      Host wide_dy = dy,
           narrow_dx0 = dx0;  // as a layer has them: the branch's gradient wide, the residual's narrow
      const Device narrow_dx = Activation(narrow_dx0, 2), other_dw = F32(dw0), other_db = F32(db0);
      backend().NormBackward(norm, x_in, F32(w), 1e-2f, Of(DType::kF32, wide_dy), narrow_dx, other_dw,
                             has_bias ? other_db.view() : Matrix{});
      Host expected_dx = dx0, expected_dw = dw0, expected_db = db0;
      const Host ones(1, cols, 1), none;
      for (int64_t i = 0; i < rows; ++i) {
        std::vector<double> row = RowOf(x, i);
        const std::vector<double> xhat = NormRow(norm, row, ones, none, 1e-2);
        for (int64_t j = 0; j < cols; ++j) {
          const double at = row[j], step = 1e-5;
          row[j] = at + step;
          const std::vector<double> up = NormRow(norm, row, w, none, 1e-2);
          row[j] = at - step;
          const std::vector<double> down = NormRow(norm, row, w, none, 1e-2);
          row[j] = at;
          for (int64_t l = 0; l < cols; ++l) expected_dx(i, j) += dy(i, l) * (up[l] - down[l]) / (2 * step);
          expected_dw(0, j) += dy(i, j) * xhat[j];
          if (has_bias) expected_db(0, j) += dy(i, j);
        }
      }
      ExpectNear(dx, expected_dx);
      ExpectNear(dw, expected_dw);
      ExpectNear(db, expected_db);
      ExpectNear(narrow_dx, expected_dx);
      ExpectNear(other_dw, expected_dw);
      ExpectNear(other_db, expected_db);
    }
  }
}

TEST_P(BackendConformance, RopeRotatesAndItsInverseRotatesBack) {
  for (int64_t d : {2, 6, 32, 64, 128}) {
    for (int64_t n : {0, 1, 5, 140}) {
      const int64_t heads = 3;
      Host positions(n, 1), table(n, d), x = Random(n, heads * d, 41);
      // Far positions too: angles must not be formed in low precision.
      for (int64_t i = 0; i < n; ++i) positions(i, 0) = i % 2 == 0 ? i : 1000000 + i;
      const Device ids = I32(positions), angles = F32(table, 1), rotated = Activation(x, 2);
      backend().RopeTable(ids, 10000.0, angles);
      Host expected_table(n, d), expected = x;
      for (int64_t i = 0; i < n; ++i) {
        for (int64_t j = 0; j < d / 2; ++j) {
          const double angle = positions(i, 0) * std::pow(10000.0, -2.0 * j / d);
          const double cos = expected_table(i, j) = std::cos(angle);
          const double sin = expected_table(i, d / 2 + j) = std::sin(angle);
          for (int64_t head = 0; head < heads; ++head) {
            const int64_t first = head * d + j, second = first + d / 2;
            expected(i, first) = x(i, first) * cos - x(i, second) * sin;
            expected(i, second) = x(i, second) * cos + x(i, first) * sin;
          }
        }
      }
      ExpectNear(angles, expected_table, 0.1);
      backend().Rope(angles, false, rotated);
      ExpectNear(rotated, expected);
      backend().Rope(angles, true, rotated);
      ExpectNear(rotated, x);
      const Device wide = F32(x, 1);
      backend().Rope(angles, false, wide);
      ExpectNear(wide, expected);
    }
  }
}

TEST_P(BackendConformance, ActivationForwardMatchesItsFormula) {
  for (auto f : {metp::Activation::kGelu, metp::Activation::kSwiGlu}) {
    for (auto [rows, cols] : OddShapes()) {
      for (double range : {1.0, 120.0}) {
        Host u = Random(rows, cols, 51, -range, range), v = Random(rows, cols, 52), zero(rows, cols);
        const Device du = Activation(u, 1), dv = Activation(v, 2), m = Activation(zero, 3);
        const bool gated = f == metp::Activation::kSwiGlu;
        backend().ActivationForward(f, du, gated ? dv.view() : Matrix{}, m);
        Host expected(rows, cols);
        for (size_t i = 0; i < u.values.size(); ++i) {
          expected.values[i] = gated ? Silu(u.values[i]) * v.values[i] : Gelu(u.values[i]);
        }
        ExpectNear(m, expected);
        backend().ActivationForward(f, du, gated ? dv.view() : Matrix{}, du);  // in place
        ExpectNear(du, expected);
      }
    }
  }
}

TEST_P(BackendConformance, ActivationBackwardLeavesGradientsAndTheActivation) {
  for (auto f : {metp::Activation::kGelu, metp::Activation::kSwiGlu}) {
    for (auto [rows, cols] : OddShapes()) {
      for (double range : {1.0, 120.0}) {
        Host u = Random(rows, cols, 53, -range, range), v = Random(rows, cols, 54),
             dm = Random(rows, cols, 55);
        const Device du = Activation(u, 1), dv = Activation(v, 2), m = Activation(dm, 3);
        const bool gated = f == metp::Activation::kSwiGlu;
        backend().ActivationBackward(f, du, gated ? dv.view() : Matrix{}, m);
        Host expected_u(rows, cols), expected_v = v, expected_m(rows, cols);
        for (size_t i = 0; i < u.values.size(); ++i) {
          const double x = u.values[i], y = v.values[i], g = dm.values[i];
          expected_u.values[i] = g * (gated ? y * Slope(Silu, x) : Slope(Gelu, x));
          if (gated) expected_v.values[i] = g * Silu(x);
          expected_m.values[i] = gated ? Silu(x) * y : Gelu(x);
        }
        ExpectNear(du, expected_u);
        ExpectNear(dv, expected_v);
        ExpectNear(m, expected_m);
      }
    }
  }
}

}  // namespace metp::testing
