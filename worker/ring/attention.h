#pragma once

// The attention unit: Y = sum over head groups i of f(N Wqkv_i) Wo_i, where f is ring attention.
//
// Two levels. Outside, head groups: group i's weights are gathered round the ring while the group before is
// at work; only one group's Q, K, V ever exist. Inside, the ring: the group's K, V travel, every rank merges
// its own queries' partial results by log-sum-exp. Backward takes O and LSE as Forward left them, and makes
// Q, K, V again from N unless they were kept. dK, dV travel home behind the query half of the weight
// gradients; the group's weight gradients are scattered back during the next group (or whatever pass comes
// next).
//
// Shapes: N, Y, dY, dN [n, h]; O [n, a d]; LSE [n, a]. What steps or groups add to (Y, dN, dQ, dK, dV) is
// fp32, whatever the activations are: sums in 16 bits would lose more with every rank. Source: metp.md,
// section 3; tests/reference, metp_attention*.

#include <memory>
#include <vector>

#include "worker/ring/gather.h"
#include "worker/ring/ring.h"
#include "worker/ring/slots.h"
#include "worker/ring/tokens.h"

namespace metp {

struct AttentionShape {
  int64_t h = 0;
  int a = 0, g = 0, d = 0;
  std::vector<HeadGroup> groups;
  bool tiled = false;     // scores in memory, one tile at a time, instead of fused blocks
  int64_t tile_rows = 0;  // query rows of a tiled block; 0: the whole chunk
};

/// One layer's attention matrices on this rank, or their gradients: one GroupShard per head group. Biases
/// are whole ([1, a d], [1, g d], [1, g d]) or empty.
struct AttentionParameters {
  std::vector<GroupShard> groups;
  Matrix bq, bk, bv;
};

/// One group's queries, keys and values, biased and rotated. K, V lie in one matrix, as they travel.
struct ProjectedGroup {
  Tensor q;   // [n, a d / c]
  Tensor kv;  // flat, columns K | V: [n, 2 g d / c] if kept, else with room for the largest rank's
};

class AttentionUnit {
 public:
  /// All must outlive the unit.
  AttentionUnit(Ring& ring, const AttentionShape& shape, const TokenRows& tokens)
      : ring_(ring), backend_(ring.backend()), shape_(shape), tokens_(tokens) {}

  /// Starts gathering the first head group's weights, so that they are there when Forward or Backward asks:
  /// to be called a pass ahead.
  std::shared_ptr<WeightGather> Prefetch(const AttentionParameters& weights) { return Gather(weights, 0); }

  /// Y += attention(N); leaves O and LSE, and in `keep`, unless null, every group's projections. `first` from
  /// Prefetch.
  void Forward(const AttentionParameters& weights, std::shared_ptr<WeightGather> first, const Matrix& N,
               const Matrix& O, const Matrix& LSE, const Matrix& Y,
               std::vector<ProjectedGroup>* keep = nullptr);

  /// Y += sum over groups of O_i Wo_i: what Forward added to Y, without attention. Wo travels, one group
  /// after the other.
  void OutputProjection(const AttentionParameters& weights, const Matrix& O, const Matrix& Y);

  /// What a layer's forward pass left for its backward pass.
  struct Saved {
    Matrix N, O, LSE;
    std::vector<ProjectedGroup>* projections = nullptr;  // as kept by Forward; used up
  };

  /// dN += gradient; the weights' gradients are added to `gradients`, complete once nobody is aboard the ring
  /// any more. `then`, unless null: weights that attention needs next; their first group is gathered behind
  /// this pass's last, and returned.
  std::shared_ptr<WeightGather> Backward(const AttentionParameters& weights,
                                         const AttentionParameters& gradients,
                                         std::shared_ptr<WeightGather> first, const Saved& saved,
                                         const Matrix& dY, const Matrix& dN,
                                         const AttentionParameters* then = nullptr);

 private:
  /// One (own chunk, source chunk) block that is not empty.
  struct Pair {
    ChunkRows own, source;
  };

  std::shared_ptr<WeightGather> Gather(const AttentionParameters& weights, size_t group);
  ProjectedGroup Project(const AttentionParameters& weights, const WeightGather& gathered,
                         const HeadGroup& group, const Matrix& N, bool keep);
  /// K, V set out; a projection that is not kept lends its place as one of the slots.
  std::shared_ptr<TravellingShards> Travel(const ProjectedGroup& projected, const HeadGroup& group,
                                           bool kept);
  /// fp32 `wide` as an operand of a product: itself, or cast into `room`, which nobody needs any more.
  Matrix AsOperand(const Matrix& wide, const Matrix& room);
  std::vector<int64_t> KvSizes(const HeadGroup& group) const;
  std::vector<Pair> Pairs(int source) const;
  Tensor Scores(const HeadGroup& group, int per_head) const;
  AttentionBlock Block(const HeadGroup& group, const Matrix& q, const Matrix& kv, const Pair& pair,
                       Range rows, const Tensor& scores, int per_head) const;

  Ring& ring_;
  Backend& backend_;
  const AttentionShape& shape_;
  const TokenRows& tokens_;
};

}  // namespace metp
