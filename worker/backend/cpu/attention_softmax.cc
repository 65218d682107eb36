#include "worker/backend/cpu/attention_softmax.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "worker/backend/cpu/attention_softmax.cc"
#include <algorithm>
#include <cmath>
#include <limits>

#include "hwy/foreach_target.h"  // first of the Highway headers
#include "hwy/highway.h"
#include "worker/backend/cpu/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace metp::cpu::HWY_NAMESPACE {

HWY_INLINE void Scale(float* o, int64_t n, float factor) {
  const V32 f = hn::Set(F32(), factor);
  ForEachVector(n, [&](size_t i, auto lanes) HWY_ATTR { lanes.Store(hn::Mul(lanes.Load(o + i), f), o + i); });
}

/// x = e^(x - max); returns the sum.
HWY_INLINE float Exponentials(float* x, int64_t n, float max) {
  const F32 d;
  const V32 m = hn::Set(d, max);
  return SumOver(n, [&](size_t i, auto lanes) HWY_ATTR {
    const V32 e = Exp(hn::Sub(lanes.Load(x + i), m));
    lanes.Store(e, x + i);
    return lanes.Or(e, hn::Zero(d));
  });
}

void ForwardRows(const AttentionBlock& block, int64_t first_row, int64_t rows, int64_t first_key,
                 int64_t keys, float* scores, int64_t scores_stride, RunningRow* running, float* o,
                 int64_t o_stride) {
  for (int64_t row = 0; row < rows; ++row, scores += scores_stride, o += o_stride) {
    const KeySpan seen = RowSpan(block, first_row + row).Within(first_key, first_key + keys);
    if (seen.empty()) {
      std::fill_n(scores, keys, 0.0f);
      continue;
    }
    const int64_t begin = seen.begin - first_key, n = seen.end - seen.begin;
    std::fill_n(scores, begin, 0.0f);
    std::fill(scores + begin + n, scores + keys, 0.0f);
    RunningRow& state = running[row];
    const float largest = MaxOf(scores + begin, n);
    if (largest > state.max) {
      if (state.sum != 0) {
        const float factor = std::exp(state.max - largest);
        state.sum *= factor;
        Scale(o, block.head_dim, factor);
      }
      state.max = largest;
    }
    state.sum += Exponentials(scores + begin, n, state.max);
  }
}

void BackwardRows(const AttentionBlock& block, int64_t first_row, int64_t rows, int64_t first_key,
                  int64_t keys, float* scores, float* d_p, int64_t scores_stride, const float* lse,
                  int64_t lse_stride, const float* delta, int64_t delta_stride) {
  const F32 d;
  const V32 scale = hn::Set(d, block.scale);
  for (int64_t row = 0; row < rows; ++row, scores += scores_stride, d_p += scores_stride) {
    const float row_lse = lse[row * lse_stride];
    KeySpan seen = RowSpan(block, first_row + row).Within(first_key, first_key + keys);
    if (seen.empty() || row_lse == -std::numeric_limits<float>::infinity()) seen = {first_key, first_key};
    const int64_t begin = seen.begin - first_key, n = seen.end - seen.begin;
    for (float* x : {scores, d_p}) {
      std::fill_n(x, begin, 0.0f);
      std::fill(x + begin + n, x + keys, 0.0f);
    }
    const V32 m = hn::Set(d, row_lse), row_delta = hn::Set(d, delta[row * delta_stride]);
    float* p = scores + begin;
    float* ds = d_p + begin;
    ForEachVector(n, [&](size_t i, auto lanes) HWY_ATTR {
      const V32 e = Exp(hn::Sub(lanes.Load(p + i), m));
      lanes.Store(e, p + i);
      lanes.Store(hn::Mul(hn::Mul(e, scale), hn::Sub(lanes.Load(ds + i), row_delta)), ds + i);
    });
  }
}

void ScaleOne(float* o, int64_t n, float factor) { Scale(o, n, factor); }

float Dot(const float* a, const float* b, int64_t n) {
  return SumOver(
      n, [&](size_t i, auto lanes) HWY_ATTR { return hn::Mul(lanes.Load(a + i), lanes.Load(b + i)); });
}

}  // namespace metp::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace metp::cpu {
HWY_EXPORT(ForwardRows);
HWY_EXPORT(BackwardRows);
HWY_EXPORT(ScaleOne);
HWY_EXPORT(Dot);

void SoftmaxForward(const AttentionBlock& block, int64_t first_row, int64_t rows, int64_t first_key,
                    int64_t keys, float* scores, int64_t scores_stride, RunningRow* running, float* o,
                    int64_t o_stride) {
  HWY_DYNAMIC_DISPATCH(ForwardRows)
  (block, first_row, rows, first_key, keys, scores, scores_stride, running, o, o_stride);
}

void SoftmaxBackward(const AttentionBlock& block, int64_t first_row, int64_t rows, int64_t first_key,
                     int64_t keys, float* scores, float* d_p, int64_t scores_stride, const float* lse,
                     int64_t lse_stride, const float* delta, int64_t delta_stride) {
  HWY_DYNAMIC_DISPATCH(BackwardRows)
  (block, first_row, rows, first_key, keys, scores, d_p, scores_stride, lse, lse_stride, delta, delta_stride);
}

void ScaleRow(float* o, int64_t head_dim, float factor) {
  HWY_DYNAMIC_DISPATCH(ScaleOne)(o, head_dim, factor);
}

float DotRow(const float* a, const float* b, int64_t d) { return HWY_DYNAMIC_DISPATCH(Dot)(a, b, d); }

}  // namespace metp::cpu
#endif  // HWY_ONCE
