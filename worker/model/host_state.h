#pragma once

// Optimizer state in host memory: fp32 masters and both moments of a run of matrix elements, cut into shards. An
// update is a pipeline over the shards, its three stages beside each other:
//
//     out       gradient 0 | gradient 1 | gradient 2 | ...
//     update                 AdamW 0    | AdamW 1    | ...
//     in                                  weights 0  | ...
//
// The device keeps the gradients and the weights that compute reads; beyond the state, the host keeps two shards'
// gradients under way.

#include <cstdint>
#include <vector>

#include "worker/backend/backend.h"

namespace metp {

class HostState {
 public:
  static constexpr int64_t kShardElements = int64_t{4}
                                            << 20;  // 16 MiB of gradient: long beside a copy's latency

  /// Moments start at zero; masters as Import says.
  HostState(Backend& backend, int64_t elements, int64_t shard_elements = kShardElements);

  enum class Part { kMasters, kFirstMoments, kSecondMoments };
  /// `part` = values[0 .. elements), and back.
  void Import(Part part, const float* values);
  void Export(Part part, float* values) const;

  /// One AdamW update by `gradients` (flat fp32, on the device), and its result into `weights`. The compute stream
  /// waits for it.
  void Update(const AdamWStep& step, const Matrix& gradients, const Matrix& weights);

 private:
  struct Shard {
    int64_t begin = 0, size = 0;
    HostBlock parts[3];
  };
  struct Stage {
    HostBlock gradient;
    HostBlock narrow;  // new weights in 16 bits; nothing where compute is in fp32
    HostTask updated, copied;
  };

  Backend& backend_;
  const bool narrow_;
  std::vector<Shard> shards_;
  std::vector<Stage> stages_;
};

}  // namespace metp
