#include "worker/model/batch.h"

#include <algorithm>

namespace metp {

namespace {

/// Key positions that a token sees: its document's, and no later one than its own if causal.
Range Visible(int64_t position, int64_t s, const std::vector<int64_t>& starts, bool causal) {
  const auto next = std::upper_bound(starts.begin(), starts.end(), position);
  const int64_t begin = next == starts.begin() ? 0 : *std::prev(next);
  return {begin, causal ? position + 1 : next == starts.end() ? s : *next};
}

}  // namespace

TokenRows MakeTokenRows(Ring& ring, const ModelConfig& config, int64_t s,
                        const std::vector<SequenceRows>& sequences) {
  TokenRows rows;
  rows.split = {s, ring.size()};
  rows.b = static_cast<int>(sequences.size());
  rows.rank = ring.rank();
  rows.causal = config.causal;
  rows.n = rows.RowsOf(ring.rank());

  Backend& backend = ring.backend();
  std::vector<int32_t> ids, targets, positions, visible;
  for (int i = 0; i < rows.b; ++i) {
    const SequenceRows& sequence = sequences[i];
    rows.documents =
        rows.documents || std::any_of(sequence.document_starts.begin(), sequence.document_starts.end(),
                                      [](int64_t start) { return start > 0; });
    auto see = [&](int64_t at) { return Visible(at, s, sequence.document_starts, config.causal); };
    for (const ChunkRows& chunk : ChunksOf(rows.split, rows.rank, i)) {
      // Both ends of what a row sees grow with its position.
      rows.seen.push_back(chunk.rows() == 0
                              ? Range{s, 0}
                              : Range{see(chunk.positions.begin).begin, see(chunk.positions.end - 1).end});
      for (int64_t at = chunk.positions.begin; at < chunk.positions.end && backend.holds_data(); ++at) {
        const Range range = see(at);
        positions.push_back(static_cast<int32_t>(at));
        visible.push_back(static_cast<int32_t>(range.begin));
        visible.push_back(static_cast<int32_t>(range.end));
      }
    }
    ids.insert(ids.end(), sequence.ids.begin(), sequence.ids.end());
    targets.insert(targets.end(), sequence.targets.begin(), sequence.targets.end());
  }

  auto upload = [&](const std::vector<int32_t>& values, int64_t cols) {
    Tensor tensor = backend.Allocate(rows.n, cols, DType::kI32, MemoryCategory::kActivations);
    backend.CopyFromHost(values.data(), tensor);
    return tensor;
  };
  rows.ids = upload(ids, 1);
  rows.targets = upload(targets, 1);
  rows.positions = upload(positions, 1);
  rows.visible = upload(visible, 2);
  if (config.llama) {
    rows.rope = backend.Allocate(rows.n, config.d, DType::kF32, MemoryCategory::kActivations);
    backend.RopeTable(rows.positions, config.theta, rows.rope);
  }
  return rows;
}

}  // namespace metp
