#pragma once

// One micro-batch as one rank holds it: its own rows (zigzag chunks r and 2p-1-r of every sequence) and what
// is known of each row. Rows lie sequence by sequence, each as the rank's first chunk, then its second.

#include <vector>

#include "worker/backend/backend.h"
#include "worker/ring/partition.h"

namespace metp {

/// Consecutive rows with consecutive positions of one sequence.
struct ChunkRows {
  int64_t row = 0;  // first local row
  Range positions;  // of the sequence
  int64_t rows() const { return positions.size(); }
};

/// The two chunks of one sequence that `rank` holds.
inline std::array<ChunkRows, 2> ChunksOf(const Zigzag& split, int rank, int sequence) {
  const auto chunks = split.Chunks(rank);
  const int64_t first = sequence * split.Rows(rank);
  return {{{first, chunks[0]}, {first + chunks[0].size(), chunks[1]}}};
}

struct TokenRows {
  Zigzag split;
  int b = 1;  // sequences
  int rank = 0;
  bool causal = true;
  bool documents = false;  // some sequence is of several, which do not see each other
  int64_t n = 0;           // own rows, b * split.Rows(rank)
  Tensor ids, targets;     // [n, 1] int32; targets below 0 are not counted
  Tensor positions;        // [n, 1] int32
  Tensor visible;          // [n, 2] int32: the key positions that a row sees
  Tensor rope;             // [n, d] fp32: cosines and sines; empty without RoPE
  /// What the rows of own chunk k of sequence i see together, at [2 i + k]: outside it a block is skipped.
  std::vector<Range> seen;

  int64_t RowsOf(int other) const { return b * split.Rows(other); }
  int64_t MaxRows() const { return b * split.MaxRows(); }
};

}  // namespace metp
