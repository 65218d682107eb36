// AdamW.

#include "worker/backend/cuda/kernels.h"
#include "worker/backend/cuda/walk.h"

namespace metp::cuda {
namespace {

/// m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2;
/// w -= learning_rate * (m / correction1 / (sqrt(v / correction2) + eps) + weight_decay * w).
struct AdamWUpdate {
  float scale, beta1, rest1, beta2, rest2, inverse2, eps, rate, decay;

  explicit AdamWUpdate(const AdamWStep& step)
      : scale(step.gradient_scale),
        beta1(step.beta1),
        rest1(1 - step.beta1),
        beta2(step.beta2),
        rest2(1 - step.beta2),
        inverse2(1 / step.correction2),
        eps(step.eps),
        rate(step.learning_rate / step.correction1),
        decay(step.learning_rate * step.weight_decay) {}

  __device__ void operator()(const float& g, float& m, float& v, float& w) const {
    const float gradient = g * scale;
    m = fmaf(beta1, m, rest1 * gradient);
    v = fmaf(beta2, v, rest2 * (gradient * gradient));
    const float spread = sqrtf(v * inverse2) + eps;
    // The decrease is formed first: 1 - rate * decay would round a small decay away.
    w -= fmaf(rate, m / spread, decay * w);
  }
};

}  // namespace

void AdamW(cudaStream_t stream, const AdamWStep& step, const Matrix& g, const Matrix& m, const Matrix& v,
           const Matrix& w) {
  Elementwise(stream, w, AdamWUpdate(step), In<float>(g), InOut<float>(m), InOut<float>(v), InOut<float>(w));
}

}  // namespace metp::cuda
