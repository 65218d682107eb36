#pragma once

// The passes of a training step, as they are timed, reported and named in metrics.

#include <array>
#include <cstdint>
#include <string_view>

namespace metp {

enum class Pass {
  kEmbeddingForward,
  kAttentionForward,
  kMlpForward,
  kLossForward,       // pass 1: log-sum-exp
  kLossBackward,      // pass 2: both gradients
  kOutputProjection,  // recomputed in backward
  kMlpBackward,
  kAttentionBackward,
  kAttentionHome,  // dK, dV come home behind the query half of the projections' gradients
  kEmbeddingBackward,
  kFinish,    // hops for which no compute was left
  kReplicas,  // gradients summed and weights shared over data-parallel rings
};
inline constexpr int kPasses = 12;

inline std::string_view PassName(Pass pass) {
  static constexpr std::string_view kNames[kPasses] = {
      "embedding_forward", "attention_forward",  "mlp_forward",  "loss_forward",
      "loss_backward",     "output_projection",  "mlp_backward", "attention_backward",
      "attention_home",    "embedding_backward", "finish",       "replicas"};
  return kNames[static_cast<int>(pass)];
}

/// Seconds; metp.md section 7 says what each means.
struct PassSeconds {
  double compute = 0, communication = 0, exposed = 0, skew = 0;
  int64_t hops = 0, exposed_hops = 0;
};
using PassTable = std::array<PassSeconds, kPasses>;

}  // namespace metp
