#pragma once

// Who holds what: balanced ranges, the zigzag split of a sequence, and head groups. Pure arithmetic, exact
// for every size: p need not divide anything. Symbols: p ranks, s tokens per sequence, a query heads, g
// key/value heads, c head groups.

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

namespace metp {

/// Half-open range [begin, end).
struct Range {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

/// Part `i` of `n` items cut into `parts` contiguous ranges; the first n mod parts have one item more.
inline Range Part(int64_t n, int parts, int i) {
  const int64_t base = n / parts, extra = n % parts;
  const int64_t begin = i * base + std::min<int64_t>(i, extra);
  return {begin, begin + base + (i < extra ? 1 : 0)};
}

/// Number of elements in each of `parts` parts, every item being `width` elements.
inline std::vector<int64_t> PartSizes(int64_t n, int parts, int64_t width) {
  std::vector<int64_t> sizes;
  for (int i = 0; i < parts; ++i) sizes.push_back(Part(n, parts, i).size() * width);
  return sizes;
}

/// The zigzag split: the sequence is cut into 2p chunks and rank r holds chunks r and 2p-1-r, in that order,
/// so that a causal mask gives every rank the same work. Ranges are of positions; either chunk may be empty.
struct Zigzag {
  int64_t s = 0;
  int p = 1;

  std::array<Range, 2> Chunks(int rank) const {
    return {Part(s, 2 * p, rank), Part(s, 2 * p, 2 * p - 1 - rank)};
  }
  int64_t Rows(int rank) const {
    const auto chunks = Chunks(rank);
    return chunks[0].size() + chunks[1].size();
  }
  int64_t MaxRows() const {
    int64_t most = 0;
    for (int r = 0; r < p; ++r) most = std::max(most, Rows(r));
    return most;
  }
};

/// (query, key) position pairs, query in `q` and key in `k`, that a causal mask leaves: key <= query.
inline int64_t CausalPairs(Range q, Range k) {
  const int64_t first = std::max(q.begin, k.begin), last = std::min(q.end, k.end - 1);  // rows that see some
  const int64_t some = last > first ? (first + 1 - k.begin + last - k.begin) * (last - first) / 2 : 0;
  const int64_t all = std::max<int64_t>(0, q.end - std::max(q.begin, k.end - 1));  // rows that see all
  return some + all * k.size();
}

/// A head group: query heads and the key/value heads that they use. A key/value head is never split.
struct HeadGroup {
  Range q, kv;
};

inline std::vector<HeadGroup> HeadGroups(int a, int g, int c) {
  c = std::min(c, g);
  const int per = a / g;
  std::vector<HeadGroup> groups;
  for (int i = 0; i < c; ++i) {
    const Range kv = Part(g, c, i);
    groups.push_back({{kv.begin * per, kv.end * per}, kv});
  }
  return groups;
}

/// The rows of an n-row operand, tile by tile; tile_rows 0: one tile.
inline std::vector<Range> RowTiles(int64_t n, int64_t tile_rows) {
  const int64_t step = tile_rows <= 0 ? std::max<int64_t>(n, 1) : tile_rows;
  std::vector<Range> tiles;
  for (int64_t i = 0; i < n; i += step) tiles.push_back({i, std::min(n, i + step)});
  return tiles;
}

/// Rows of the largest tile.
inline int64_t TileRows(int64_t n, int64_t tile_rows) { return tile_rows <= 0 ? n : std::min(n, tile_rows); }

}  // namespace metp
