#pragma once

// Checkpoints whose every element is known, for tests of what is made of them, and small jobs of both families.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/support/planned_jobs.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/model/layout.h"

namespace metp::testing {

inline constexpr char kRun[] = "job-1/1";
inline constexpr int kStep = 7;

/// Element (i, j) of a tensor under its name here.
using Element = std::function<float(const std::string&, int64_t, int64_t)>;

/// Of its own for every element, with all bits of a float's mantissa in use.
inline float Value(const std::string& name, int64_t i, int64_t j) {
  uint64_t x =
      std::hash<std::string>()(name) + 0x9e3779b97f4a7c15u * static_cast<uint64_t>(i * 100003 + j + 1);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return static_cast<float>(static_cast<double>((x ^ (x >> 31)) >> 11) * 0x1p-52 - 1);
}

/// Any slices, with a value for every element of every kind.
class ElementSource final : public SliceSource {
 public:
  using Value = std::function<float(const std::string&, StateKind, int64_t, int64_t)>;
  ElementSource(std::vector<TensorSlice> slices, Value value)
      : slices_(std::move(slices)), value_(std::move(value)) {}
  /// The moments hold something else.
  ElementSource(std::vector<TensorSlice> slices, const Element& element)
      : ElementSource(std::move(slices),
                      [element](const std::string& name, StateKind kind, int64_t i, int64_t j) {
                        return kind == StateKind::kMaster ? element(name, i, j) : 99.0f;
                      }) {}
  const std::vector<TensorSlice>& slices() const override { return slices_; }
  void Get(size_t s, StateKind kind, float* to) const override {
    const TensorSlice& slice = slices_[s];
    for (int64_t i = slice.row.begin; i < slice.row.end; ++i) {
      for (int64_t j = slice.col.begin; j < slice.col.end; ++j) *to++ = value_(slice.name, kind, i, j);
    }
  }

 private:
  const std::vector<TensorSlice> slices_;
  const Value value_;
};

inline std::vector<TensorSlice> SlicesOf(const ParameterLayout& layout, Range own, bool vectors) {
  std::vector<TensorSlice> slices;
  for (const ArenaSlice& place : layout.Slices(own, vectors)) slices.push_back(place.slice);
  return slices;
}

/// A checkpoint of step 7 in `directory`, by p x rings ranks.
inline absl::Status WriteCheckpoint(FileSystem& files, const std::string& directory, const v1::JobSpec& job,
                                    int p = 1, int rings = 1, const Element& element = Value) {
  const std::string folder = PartialFolder(directory, kStep, kRun);
  absl::Status done = ClaimCheckpoints(files, directory, kRun);
  if (done.ok()) done = files.MakeFolder(folder);
  for (int rank = 0; rank < p * rings && done.ok(); ++rank) {
    const ParameterLayout layout(MakeModelConfig(job.model()), p, rank % p, 2);
    const Range own = Part(layout.matrix_size(), rings, rank / p);
    done =
        WriteShard(files, folder, rank, p * rings, ElementSource(SlicesOf(layout, own, rank == 0), element));
  }
  if (!done.ok()) return done;
  return CommitCheckpoint(files, directory, kStep, kRun, p * rings, {}, job, v1::Plan());
}

inline v1::JobSpec LlamaJob(const std::vector<std::string>& overrides = {}) {
  return PlannedJob(
      "family: llama, layers: 2, hidden: 20, heads: 6, kv_heads: 2, head_dim: 4, ffn: 30, rope_theta: 5000, "
      "norm_eps: 1e-6",
      16, overrides);
}
inline v1::JobSpec Gpt2Job(const std::vector<std::string>& overrides = {}) {
  return PlannedJob("family: gpt2, layers: 2, hidden: 24, heads: 6, ffn: 40, vocab: 260, max_positions: 32",
                    16, overrides);
}

}  // namespace metp::testing
