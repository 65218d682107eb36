#pragma once

// A model's dimensions as the engine uses them, from a normalized job. Letters as in metp.md.

#include <cstdint>

#include "metp/v1/job.pb.h"

namespace metp {

struct ModelConfig {
  bool llama = false;  // RMSNorm, RoPE, SwiGLU, no biases; otherwise LayerNorm, position table, GELU, biases
  int layers = 0;      // L
  int64_t h = 0, f = 0, V = 0;
  int a = 0, g = 0, d = 0;
  int64_t max_positions = 0;  // rows of the position table; 0 with RoPE
  bool tied = false;          // the LM head is the token table
  bool causal = true;
  double theta = 10000, eps = 1e-5;
};

inline ModelConfig MakeModelConfig(const v1::ModelSpec& spec) {
  ModelConfig c;
  c.llama = spec.family() == v1::ModelSpec::FAMILY_LLAMA;
  c.layers = spec.layers();
  c.h = spec.hidden();
  c.f = spec.ffn();
  c.V = spec.vocab();
  c.a = spec.heads();
  c.g = spec.kv_heads();
  c.d = spec.head_dim();
  c.max_positions = c.llama ? 0 : spec.max_positions();
  c.tied = spec.tie_embeddings();
  c.causal = spec.causal();
  c.theta = spec.rope_theta();
  c.eps = spec.norm_eps();
  return c;
}

/// Elements of all matrices (vectors are small).
inline double MatrixParameters(const ModelConfig& c) {
  const double attention = (2.0 * c.a + 2.0 * c.g) * c.d,
               mlp = (c.llama ? 3.0 : 2.0) * static_cast<double>(c.f);
  const double tables = static_cast<double>(c.V) * (c.tied ? 1 : 2) + static_cast<double>(c.max_positions);
  return static_cast<double>(c.h) * (c.layers * (attention + mlp) + tables);
}

/// Model FLOPs of training one sequence of s tokens, forward and backward (three times forward). Products
/// with matrices and attention's two products count, causal attention half; embeddings, norms and
/// recomputation do not.
inline double ModelFlops(const ModelConfig& c, int64_t s) {
  const double attention = 2.0 * c.h * (2.0 * c.a + 2.0 * c.g) * c.d;
  const double mlp = 2.0 * (c.llama ? 3 : 2) * c.h * c.f;
  const double scores = 4.0 * s * c.a * c.d / (c.causal ? 2 : 1);
  return 3.0 * s * (c.layers * (attention + mlp + scores) + 2.0 * c.h * c.V);
}

}  // namespace metp
