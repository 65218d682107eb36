// Embedding, cross-entropy, AdamW.

#include <limits>

#include "tests/worker/backend/conformance.h"

namespace metp::testing {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Host RandomInts(int64_t rows, int64_t low, int64_t high, uint32_t seed) {
  Host out(rows, 1);
  std::mt19937 bits(seed);
  for (double& x : out.values) x = static_cast<double>(low + static_cast<int64_t>(bits() % (high - low)));
  return out;
}

}  // namespace

TEST_P(BackendConformance, EmbeddingGatherPicksTheShardsRowsAndLeavesOthers) {
  for (int64_t n : {0, 1, 9, 300}) {
    for (int64_t h : {1, 17, 64}) {
      for (bool accumulate : {false, true}) {
        const int64_t rows = 11, first = 20;
        Host table = Random(rows, h, 61), x = Random(n, h, 62);
        const Host ids = RandomInts(n, first - 5, first + rows + 5, 63);
        const Device dx = Activation(x, 1);
        backend().EmbeddingGather(I32(ids, 1), first, Activation(table, 2), accumulate, dx);
        Host expected = x;
        for (int64_t i = 0; i < n; ++i) {
          const int64_t row = static_cast<int64_t>(ids(i, 0)) - first;
          if (row < 0 || row >= rows) continue;
          for (int64_t j = 0; j < h; ++j) expected(i, j) = table(row, j) + (accumulate ? x(i, j) : 0);
        }
        ExpectNear(dx, expected);
      }
    }
  }
}

TEST_P(BackendConformance, EmbeddingScatterAddSumsRowsOfOneId) {
  for (int64_t n : {0, 1, 9, 1000}) {
    for (int64_t h : {1, 17, 64}) {
      for (DType type : WideTypes()) {
        const int64_t rows = 11, first = 20;
        Host dx = Random(n, h, 64);
        const Host table = Random(rows, h, 65);
        const Host ids = RandomInts(n, first - 5, first + rows + 5, 66);
        const Device target = F32(table, 2);
        backend().EmbeddingScatterAdd(I32(ids), first, Of(type, dx, 1), target);
        Host expected = table;
        for (int64_t i = 0; i < n; ++i) {
          const int64_t row = static_cast<int64_t>(ids(i, 0)) - first;
          if (row < 0 || row >= rows) continue;
          for (int64_t j = 0; j < h; ++j) expected(row, j) += dx(i, j);
        }
        ExpectNear(target, expected);
      }
    }
  }
}

TEST_P(BackendConformance, CrossEntropyOverTilesEqualsTheWholeVocabulary) {
  for (int64_t n : {0, 1, 7, 150}) {
    for (int64_t vocabulary : {1, 37, 500}) {
      for (double range : {1.0, 300.0}) {  // without the maximum subtracted e^300 would overflow
        Host logits = Random(n, vocabulary, 71, -range, range);
        for (double& x : logits.values) x = Rounded(x, activation());
        const Host targets = RandomInts(n, -1, vocabulary, 72);  // -1: ignored
        Host lse(n, 1), target_logit(n, 1, 5), gradient(n, vocabulary);
        double loss = 1.25;
        const float scale = 0.375f;
        for (int64_t i = 0; i < n; ++i) {
          double max = -kInfinity, sum = 0;
          for (int64_t j = 0; j < vocabulary; ++j) max = std::max(max, logits(i, j));
          for (int64_t j = 0; j < vocabulary; ++j) sum += std::exp(logits(i, j) - max);
          lse(i, 0) = max + std::log(sum);
          const int64_t target = static_cast<int64_t>(targets(i, 0));
          if (target < 0) continue;
          target_logit(i, 0) = logits(i, target);
          loss += lse(i, 0) - logits(i, target);
          for (int64_t j = 0; j < vocabulary; ++j) {
            gradient(i, j) = scale * (std::exp(logits(i, j) - lse(i, 0)) - (j == target));
          }
        }
        for (int64_t tile : {vocabulary, int64_t{13}}) {
          Host same = logits;
          const Device wide = F32(same, 1), wide_lse = F32(Host(n, 1, -kInfinity)),
                       wide_logit = F32(Host(n, 1, 5));
          backend().CrossEntropyForward(wide, I32(targets), 0, wide_lse, wide_logit);
          ExpectNear(wide_lse, lse);
          backend().CrossEntropyBackward(wide, I32(targets), 0, wide_lse, scale);
          ExpectNear(wide, gradient, std::max(1.0, range / 10), scale);
          const Device ids = I32(targets, 1), got_lse = F32(Host(n, 1, -kInfinity), 2),
                       got_logit = F32(Host(n, 1, 5), 1);
          Host copy = logits;
          const Device whole = Activation(copy, 3);
          auto for_each_tile = [&, tile = tile](auto f) {
            for (int64_t first = 0; first < vocabulary; first += tile) {
              f(whole.view().Cols(first, std::min(vocabulary, first + tile)), first);
            }
          };
          for_each_tile([&](const Matrix& part, int64_t first) {
            backend().CrossEntropyForward(part, ids, first, got_lse, got_logit);
          });
          ExpectNear(got_lse, lse);
          ExpectNear(got_logit, target_logit);
          const Device total(backend(), Host(1, 1, 1.25), DType::kF64);
          backend().LossSum(got_lse, got_logit, ids, total);
          EXPECT_NEAR(total.Get()(0, 0), loss, GetParam().tolerance * std::max(1.0, std::abs(loss)));
          for_each_tile([&](const Matrix& part, int64_t first) {
            backend().CrossEntropyBackward(part, ids, first, got_lse, scale);
          });
          // lse is fp32: its own rounding, relative to its size, is the gradient's relative error.
          ExpectNear(whole, gradient, std::max(1.0, range / 10), scale);
        }
      }
    }
  }
}

TEST_P(BackendConformance, ALogitThatIsNoNumberMakesTheLossNoNumber) {
  for (int64_t at : {0, 5, 16, 39}) {
    Host logits = Random(1, 40, 73);
    const Device ids = I32(Host(1, 1, 3)), lse = F32(Host(1, 1, -kInfinity)), logit = F32(Host(1, 1));
    logits(0, at) = std::numeric_limits<double>::quiet_NaN();
    const Device tile(backend(), logits, DType::kF32);
    backend().CrossEntropyForward(tile, ids, 0, lse, logit);
    EXPECT_TRUE(std::isnan(lse.Get()(0, 0))) << "NaN in column " << at;
  }
}

TEST_P(BackendConformance, AdamWFollowsItsFormulaOverSeveralSteps) {
  for (auto [rows, cols] : OddShapes()) {
    for (int64_t pad : {0, 1}) {
      const Host w0 = Random(rows, cols, 81);
      Host w = w0, m(rows, cols), v(rows, cols);
      const Device dw = F32(w, pad), dm = F32(m, pad), dv = F32(v, 2 * pad);
      for (int t = 1; t <= 3; ++t) {
        const Host g = Random(rows, cols, 82 + t);
        AdamWStep step;
        step.learning_rate = 1e-2f;
        step.beta1 = 0.875f;  // exact in fp32, so that 1 - beta is the same for all
        step.beta2 = 0.96875f;
        step.eps = 1e-8f;
        step.weight_decay = 0.125f;
        step.correction1 = static_cast<float>(1 - std::pow(0.875, t));
        step.correction2 = static_cast<float>(1 - std::pow(0.96875, t));
        step.gradient_scale = 0.5f;
        backend().AdamW(step, F32(g, 3 * pad), dm, dv, dw);
        for (size_t i = 0; i < w.values.size(); ++i) {
          const double gradient = 0.5 * g.values[i];
          m.values[i] = 0.875 * m.values[i] + 0.125 * gradient;
          v.values[i] = 0.96875 * v.values[i] + 0.03125 * gradient * gradient;
          const double mh = m.values[i] / (1 - std::pow(0.875, t)),
                       vh = v.values[i] / (1 - std::pow(0.96875, t));
          w.values[i] -= 1e-2f * (mh / (std::sqrt(vh) + 1e-8) + 0.125 * w.values[i]);
        }
        ExpectNear(dm, m);
        ExpectNear(dv, v);
        ExpectNear(dw, w);
      }
    }
  }
}

}  // namespace metp::testing
