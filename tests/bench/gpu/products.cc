// The products of one layer and of the loss as one rank makes them, with the operands' places in wider matrices, their
// types and transposes as worker/ring has them.

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"
#include "tests/bench/gpu/parts.h"
#include "tests/bench/gpu/plain_product.h"

namespace metp::gpu_bench {
namespace {

constexpr auto kNo = Transpose::kNo, kYes = Transpose::kYes;

/// Columns from `first` on of a matrix [rows, whole].
struct Operand {
  int64_t rows = 0, cols = 0;
  int64_t whole = 0, first = 0;  // 0: just its columns
  DType type = DType::kBF16;
  int64_t bytes() const { return rows * cols * SizeOf(type); }
};

struct Pass {
  const char* name;
  Operand a;
  Transpose ta;
  Operand b;
  Transpose tb;
  float beta;
  Operand c;
};

std::vector<Pass> PassesOf(const Shapes& s) {
  const auto wide = [](int64_t rows, int64_t cols, int64_t whole = 0, int64_t first = 0) {
    return Operand{rows, cols, whole, first, DType::kF32};
  };
  const int64_t n = s.n, t = std::min(s.tile_rows, s.n), h = s.h, wq = s.wq(), wk = 2 * s.wk(), qkv = wq + wk;
  const int64_t f = s.f / s.p, v = s.V / s.p;
  return {
      {"Q projection", {n, h}, kNo, {h, wq, qkv}, kNo, 0, {n, wq}},
      {"K, V projection", {n, h}, kNo, {h, wk, qkv, wq}, kNo, 0, {n, wk}},
      {"output projection", {n, wq, h}, kNo, {h, wq}, kYes, 1, wide(n, h)},
      {"output projection, made again", {n, wq, h}, kNo, {h / s.p, wq}, kYes, 1, wide(n, h / s.p, h)},
      {"MLP in", {t, h}, kNo, {h, 2 * f}, kNo, 0, {t, 2 * f}},
      {"MLP out", {t, f, 2 * f}, kNo, {f, h}, kNo, 1, wide(t, h)},
      {"MLP out, d input", {t, h}, kNo, {f, h}, kYes, 0, {t, f}},
      {"MLP out, d weight", {t, f}, kYes, {t, h}, kNo, 1, wide(f, h)},
      {"MLP in, d weight", {t, h}, kYes, {t, 2 * f}, kNo, 1, wide(h, 2 * f)},
      {"MLP in, d input", {t, 2 * f}, kNo, {h, 2 * f}, kYes, 1, wide(t, h)},
      {"output, d input", {n, h}, kNo, {h, wq}, kNo, 0, {n, wq}},
      {"output, d weight", {n, h}, kYes, {n, wq, h}, kNo, 0, wide(h, wq)},
      {"Q, d weight", {n, h}, kYes, {n, wq}, kNo, 0, wide(h, wq, qkv)},
      {"Q, d input", {n, wq}, kNo, {h, wq, qkv}, kYes, 1, wide(n, h)},
      {"K, V, d weight", {n, h}, kYes, {n, wk}, kNo, 0, wide(h, wk, qkv, wq)},
      {"K, V, d input", {n, wk}, kNo, {h, wk, qkv, wq}, kYes, 1, wide(n, h)},
      {"loss tile", {t, h}, kNo, {v, h}, kYes, 0, wide(t, v)},
      {"loss, d input", {t, v}, kNo, {v, h}, kNo, 1, wide(t, h)},
      {"loss, d table", {t, v}, kYes, {t, h}, kNo, 1, wide(v, h)},
  };
}

struct Operands {
  Tensor a, b, c;
  cuda::Product product;
};

Operands MakeOperands(Bench& bench, const Pass& pass) {
  const auto make = [&](const Operand& x) {
    return bench.Values(x.rows, x.whole == 0 ? x.cols : x.whole, x.type);
  };
  const auto view = [](const Tensor& t, const Operand& x) { return t->Cols(x.first, x.first + x.cols); };
  Operands set{make(pass.a), make(pass.b), make(pass.c), {}};
  set.product.a = view(set.a, pass.a);
  set.product.ta = pass.ta;
  set.product.b = view(set.b, pass.b);
  set.product.tb = pass.tb;
  set.product.beta = pass.beta;
  set.product.c = view(set.c, pass.c);
  return set;
}

/// Share of the peer's rate.
double Measure(Bench& bench, const Pass& pass) {
  const int64_t bytes = pass.a.bytes() + pass.b.bytes() + (pass.beta == 0 ? 1 : 2) * pass.c.bytes();
  const auto sets = bench.Sets<Operands>(bytes, [&] { return MakeOperands(bench, pass); });
  const auto of = [&](int round) -> const cuda::Product& {
    return sets[static_cast<size_t>(round) % sets.size()].product;
  };
  PlainProduct plain(bench, of(0));
  plain.ChooseFastest(of);
  const std::vector<double> seconds =
      bench.Medians({[&](int round) { plain.Run(of(round)); },
                     [&](int round) {
                       const cuda::Product& x = of(round);
                       bench.backend().Gemm(1, x.a, x.ta, x.b, x.tb, x.beta, x.c);
                     }});
  const int64_t k = pass.ta == kYes ? pass.a.rows : pass.a.cols;
  const double flops =
      2.0 * static_cast<double>(pass.c.rows) * static_cast<double>(pass.c.cols) * static_cast<double>(k);
  bench.rates().products.push_back({flops, static_cast<double>(bytes), seconds[1]});
  const double share = seconds[0] / seconds[1];
  bench.report().Add({absl::StrFormat("%s (%d x %d x %d)", pass.name, pass.c.rows, pass.c.cols, k),
                      seconds[1], flops / seconds[1] * 1e-12, share,
                      absl::StrFormat("%.3f of the ceiling; peer best of %d",
                                      flops / seconds[1] / bench.rates().product_flops, plain.algorithms())});
  return share;
}

}  // namespace

void MeasureProducts(Bench& bench) {
  bench.report().Section("Products of a training step, bf16 (rows x columns x inner)", "TFLOP/s", "the peer");
  double worst = INFINITY;
  std::string name;
  for (const Pass& pass : PassesOf(bench.shapes())) {
    const double share = Measure(bench, pass);
    if (share < worst) name = pass.name;
    worst = std::min(worst, share);
  }
  bench.report().Goal("GEMM passes at least 0.85 of a plain cuBLASLt product of the same shape",
                      absl::StrFormat("%.3f at worst (%s)", worst, name));
}

}  // namespace metp::gpu_bench
