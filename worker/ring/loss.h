#pragma once

// The loss unit: cross-entropy with f = softmax over vocabulary shards. Logits never exist whole: pass 1
// leaves the log-sum-exp and the target's logit of every row, pass 2 forms each tile again and both gradients
// from it. Source: metp.md, section 3; tests/reference, metp_loss.

#include "worker/ring/ring.h"

namespace metp {

struct LossShape {
  int64_t V = 0;
  int64_t tile_rows = 0;  // rows of a logits tile [tile_rows, V/p]; 0: all
};

/// X [n, h]; home [V/p, h]: this rank's rows of the LM head; targets [n, 1], below 0: not counted. `counted`:
/// counted targets of the whole global batch, over all ranks and micro-batches: gradients are those of the
/// mean over it. total [1, 1] fp64 += this rank's sum of losses, not divided. dX [n, h] fp32 is written,
/// d_home is added to.
void Loss(Ring& ring, const LossShape& shape, const Matrix& home, const Matrix& d_home, const Matrix& X,
          const Matrix& targets, int64_t counted, const Matrix& total, const Matrix& dX);

}  // namespace metp
