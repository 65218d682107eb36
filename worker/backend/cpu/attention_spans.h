#pragma once

// Which keys of a block a range of query rows sees: the part of attention that is only about indices. Pure;
// any thread.

#include <algorithm>
#include <cstdint>

#include "worker/backend/backend.h"

namespace metp::cpu {

/// Key rows [begin, end) of a block, counted from its first key.
struct KeySpan {
  int64_t begin = 0, end = 0;
  bool empty() const { return begin >= end; }
  KeySpan Within(int64_t first, int64_t last) const { return {std::max(begin, first), std::min(end, last)}; }
};

/// Keys of the block that query row `row` sees.
inline KeySpan RowSpan(const AttentionBlock& block, int64_t row) {
  const int32_t* visible = block.visible.i32() + row * block.visible.stride;
  const KeySpan span =
      KeySpan{visible[0] - block.key_position, visible[1] - block.key_position}.Within(0, block.k.rows);
  return span.empty() ? KeySpan{} : span;
}

/// Keys that at least one, and that all, of a range of query rows see. `some` is the shortest span that holds
/// the former.
struct RangeSpans {
  KeySpan some, all;
};

inline RangeSpans SpansOf(const AttentionBlock& block, int64_t first_row, int64_t last_row) {
  RangeSpans spans{{block.k.rows, 0}, {0, block.k.rows}};
  for (int64_t row = first_row; row < last_row; ++row) {
    const KeySpan span = RowSpan(block, row);
    if (!span.empty()) {
      spans.some = {std::min(spans.some.begin, span.begin), std::max(spans.some.end, span.end)};
    }
    spans.all = spans.all.Within(span.begin, span.end);
  }
  if (spans.some.empty()) spans.some = {};
  if (spans.all.empty()) spans.all = {spans.some.end, spans.some.end};
  return spans;
}

/// Query rows per strip where only some of a tile's keys are visible: the shorter, the less is computed in
/// vain along a causal diagonal, and the less efficient each product.
inline constexpr int64_t kStripRows = 64;

/// Covers what rows [first_row, last_row) see of keys [first_key, last_key) with rectangles of at most
/// `key_tile` keys: f(row_begin, row_end, key_begin, key_end). Keys that all rows see are taken at full
/// height; the rest in strips of rows, each as wide as its rows need. Every key is in at most one rectangle
/// per row.
template <class F>
void ForEachRectangle(const AttentionBlock& block, int64_t first_row, int64_t last_row, int64_t first_key,
                      int64_t last_key, int64_t key_tile, const F& f) {
  const RangeSpans spans = SpansOf(block, first_row, last_row);
  const KeySpan some = spans.some.Within(first_key, last_key);
  if (some.empty()) return;
  const KeySpan all = spans.all.Within(some.begin, some.end);
  auto tiles = [&](int64_t row_begin, int64_t row_end, KeySpan keys) {
    for (int64_t key = keys.begin; key < keys.end; key += key_tile) {
      f(row_begin, row_end, key, std::min(keys.end, key + key_tile));
    }
  };
  auto strips = [&](KeySpan keys) {
    if (keys.empty()) return;
    for (int64_t row = first_row; row < last_row; row += kStripRows) {
      const int64_t row_end = std::min(last_row, row + kStripRows);
      tiles(row, row_end, SpansOf(block, row, row_end).some.Within(keys.begin, keys.end));
    }
  };
  if (all.empty()) {
    strips(some);
    return;
  }
  strips({some.begin, all.begin});
  tiles(first_row, last_row, all);
  strips({all.end, some.end});
}

}  // namespace metp::cpu
