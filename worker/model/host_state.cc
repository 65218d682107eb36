#include "worker/model/host_state.h"

#include <algorithm>
#include <cstring>

namespace metp {

namespace {
constexpr size_t kStages = 2;
}  // namespace

HostState::HostState(Backend& backend, int64_t elements, int64_t shard_elements)
    : backend_(backend), narrow_(backend.activation() != DType::kF32) {
  HostLink& link = backend_.host_link();
  for (int64_t begin = 0; begin < elements; begin += shard_elements) {
    Shard& shard = shards_.emplace_back();
    shard.begin = begin;
    shard.size = std::min(shard_elements, elements - begin);
    for (HostBlock& block : shard.parts) {
      block = link.Allocate(shard.size * SizeOf(DType::kF32), MemoryCategory::kOptimizer);
      if (backend_.holds_data()) std::memset(block.data(), 0, block.bytes());
    }
  }
  stages_.resize(std::min(kStages, shards_.size()));
  for (Stage& stage : stages_) {
    stage.gradient = link.Allocate(shards_.front().size * SizeOf(DType::kF32), MemoryCategory::kTransient);
    if (narrow_)
      stage.narrow = link.Allocate(shards_.front().size * SizeOf(DType::kBF16), MemoryCategory::kTransient);
  }
}

// What the link still does with the blocks was awaited by the compute stream, not by this thread.
void HostState::Import(Part part, const float* values) {
  backend_.Synchronize();
  for (const Shard& shard : shards_) {
    const HostBlock& block = shard.parts[static_cast<int>(part)];
    std::memcpy(block.data(), values + shard.begin, block.bytes());
  }
}

void HostState::Export(Part part, float* values) const {
  backend_.Synchronize();
  for (const Shard& shard : shards_) {
    const HostBlock& block = shard.parts[static_cast<int>(part)];
    std::memcpy(values + shard.begin, block.data(), block.bytes());
  }
}

void HostState::Update(const AdamWStep& step, const Matrix& gradients, const Matrix& weights) {
  HostLink& link = backend_.host_link();
  const Event now = backend_.Record();
  for (size_t i = 0; i < shards_.size(); ++i) {
    const Shard& shard = shards_[i];
    Stage& stage = stages_[i % stages_.size()];
    const int64_t end = shard.begin + shard.size;
    const auto& [w, m, v] = shard.parts;
    const HostTask out = link.CopyOut(gradients.Cols(shard.begin, end), stage.gradient, now, {stage.updated});
    stage.updated = link.AdamW(step, shard.size, stage.gradient, m, v, w, narrow_ ? &stage.narrow : nullptr,
                               {out, stage.copied});
    stage.copied =
        link.CopyIn(narrow_ ? stage.narrow : w, weights.Cols(shard.begin, end), now, {stage.updated});
  }
  for (const Stage& stage : stages_) link.Await(stage.copied);
}

}  // namespace metp
