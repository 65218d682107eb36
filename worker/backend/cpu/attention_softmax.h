#pragma once

// The pointwise middle of attention, f in f(Q K^T) V, on one rectangle of scaled scores. Used by both the
// fused and the materialised path; pure functions on memory that the calling thread owns.

#include <cstdint>

#include "worker/backend/cpu/attention_spans.h"

namespace metp::cpu {

/// What a query row has accumulated: o = sum of e^(score - max) V, sum = sum of e^(score - max). A row that
/// has seen nothing has max -inf, sum 0, o 0.
struct RunningRow {
  float max, sum;
};

/// Rows [0, rows) of `scores` (element (0, 0) is block row `first_row`, block key `first_key`; `keys`
/// columns) become e^(score - max) where visible and 0 elsewhere, after each row's max has been raised to its
/// largest visible score and its sum and o [rows, head_dim] have been rescaled to match. A row that sees none
/// of the keys only gets its zeros.
void SoftmaxForward(const AttentionBlock& block, int64_t first_row, int64_t rows, int64_t first_key,
                    int64_t keys, float* scores, int64_t scores_stride, RunningRow* running, float* o,
                    int64_t o_stride);

/// Scores become P = e^(score - lse) where visible and 0 elsewhere; d_p becomes dS = P * (dP - delta) *
/// scale. Rows with lse -inf become zeros. lse, delta: one value per `stride` elements, starting with the
/// first row's.
void SoftmaxBackward(const AttentionBlock& block, int64_t first_row, int64_t rows, int64_t first_key,
                     int64_t keys, float* scores, float* d_p, int64_t scores_stride, const float* lse,
                     int64_t lse_stride, const float* delta, int64_t delta_stride);

/// o [head_dim] *= factor.
void ScaleRow(float* o, int64_t head_dim, float factor);

/// sum over d of a * b.
float DotRow(const float* a, const float* b, int64_t d);

}  // namespace metp::cpu
