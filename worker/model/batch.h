#pragma once

// Putting one micro-batch's own rows on the device.

#include <cstdint>
#include <vector>

#include "worker/model/config.h"
#include "worker/ring/ring.h"
#include "worker/ring/tokens.h"

namespace metp {

/// One sequence as a rank reads it: its own chunks' tokens and targets, row by row, and where documents
/// start.
struct SequenceRows {
  std::vector<int32_t> ids, targets;     // zigzag chunks r and 2p-1-r
  std::vector<int64_t> document_starts;  // positions, ascending, the first is 0; one entry: no document mask
};

/// Positions, visible ranges and RoPE angles follow from the split; `s`: tokens per sequence. On a backend that
/// holds no data ids and targets may be left out.
TokenRows MakeTokenRows(Ring& ring, const ModelConfig& config, int64_t s,
                        const std::vector<SequenceRows>& sequences);

}  // namespace metp
