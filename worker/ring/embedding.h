#pragma once

// The embedding unit: table shards travel and each rank picks the rows of its own tokens as they pass by.

#include "worker/ring/ring.h"

namespace metp {

/// X [n, h] = table[ids], or += with `accumulate`. home: this rank's rows of the table, [V/p, h]; V: rows in
/// all. Every id must be in [0, V).
void EmbeddingForward(Ring& ring, int64_t V, const Matrix& home, const Matrix& ids, bool accumulate,
                      const Matrix& X);

/// d_home (fp32) += this table's gradient, once nobody is aboard the ring any more.
void EmbeddingBackward(Ring& ring, int64_t V, const Matrix& d_home, const Matrix& ids, const Matrix& dX);

}  // namespace metp
