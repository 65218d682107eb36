// Fused attention of one block: n queries against n keys, causal (the diagonal of a ring's table of blocks) or seen
// whole (all others), for one head group and for all heads.

#include <cmath>
#include <limits>

#include "absl/strings/str_format.h"
#include "tests/bench/gpu/parts.h"

namespace metp::gpu_bench {
namespace {

/// Operands as the ring has them: K and V side by side, o and the gradients fp32.
class Block {
 public:
  Block(Bench& bench, int heads, int kv_heads, bool causal)
      : backend_(bench.backend()), n_(bench.shapes().n), wk_(kv_heads * bench.shapes().d) {
    const int64_t d = bench.shapes().d, wq = heads * d;
    q_ = bench.Values(n_, wq);
    kv_ = bench.Values(n_, 2 * wk_);
    d_o_ = bench.Values(n_, wq);
    o_ = bench.Values(n_, wq, DType::kF32);
    narrow_o_ = bench.Values(n_, wq);
    lse_ = bench.Values(n_, heads, DType::kF32);
    delta_ = bench.Values(n_, heads, DType::kF32);
    dq_ = bench.Values(n_, wq, DType::kF32);
    d_kv_ = bench.Values(n_, 2 * wk_, DType::kF32);
    std::vector<int32_t> seen(static_cast<size_t>(2 * n_));
    for (int64_t i = 0; i < n_; ++i) seen[2 * i + 1] = static_cast<int32_t>(causal ? i + 1 : n_);
    visible_ = bench.Integers(seen, 2);
    block_.q = q_;
    block_.k = kv_->Cols(0, wk_);
    block_.v = kv_->Cols(wk_, 2 * wk_);
    block_.visible = visible_;
    block_.heads = heads;
    block_.kv_heads = kv_heads;
    block_.head_dim = static_cast<int>(d);
    block_.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(d)));
    block_.pairs = causal ? n_ * (n_ + 1) / 2 : n_ * n_;
    // What backward is given: over all keys of this block.
    backend_.Fill(o_, 0);
    backend_.Fill(lse_, -std::numeric_limits<float>::infinity());
    Forward();
    backend_.Copy(o_, narrow_o_);
    backend_.AttentionDelta(d_o_, narrow_o_, block_.head_dim, delta_);
    backend_.Copy(lse_, kept_lse_ = bench.Values(n_, heads, DType::kF32));
  }

  void Forward() { backend_.AttentionForward(block_, o_, lse_); }
  void Backward() {
    backend_.AttentionBackward(block_, d_o_, kept_lse_, delta_, dq_, d_kv_->Cols(0, wk_),
                               d_kv_->Cols(wk_, 2 * wk_));
  }
  /// Of one product of the two forward and five backward.
  double product_flops() const {
    return 2.0 * static_cast<double>(block_.pairs) * block_.heads * block_.head_dim;
  }

 private:
  cuda::CudaBackend& backend_;
  const int64_t n_, wk_;
  Tensor q_, kv_, d_o_, o_, narrow_o_, lse_, kept_lse_, delta_, dq_, d_kv_, visible_;
  AttentionBlock block_;
};

void Measure(Bench& bench, int heads, int kv_heads, bool causal) {
  Block block(bench, heads, kv_heads, causal);
  const std::vector<double> seconds =
      bench.Medians({[&](int) { block.Forward(); }, [&](int) { block.Backward(); },
                     [&](int) {
                       block.Forward();
                       block.Backward();
                     }});
  Rates& rates = bench.rates();
  const std::string what =
      absl::StrFormat("%d x %d %s, %d/%d heads of %d", bench.shapes().n, bench.shapes().n,
                      causal ? "causal" : "full", heads, kv_heads, bench.shapes().d);
  const auto add = [&](const char* direction, double products, double time) {
    const double rate = products * block.product_flops() / time;
    bench.report().Add({what + ", " + direction, time, rate * 1e-12, rate / rates.product_flops, ""});
    return rate;
  };
  const double forward = add("forward", 2, seconds[0]);
  const double backward = add("backward", 5, seconds[1]);
  add("forward + backward", 7, seconds[2]);
  if (causal || heads != bench.shapes().heads / bench.shapes().groups) return;
  rates.attention_forward_flops = forward;
  rates.attention_backward_flops = backward;
}

}  // namespace

void MeasureAttention(Bench& bench) {
  const Shapes& s = bench.shapes();
  bench.report().Section("Fused attention, bf16, products that the mask leaves", "TFLOP/s", "the ceiling");
  for (bool causal : {true, false}) {
    Measure(bench, s.heads / s.groups, s.kv_heads / s.groups, causal);
    Measure(bench, s.heads, s.kv_heads, causal);
  }
  bench.report().Say("peer: not measured (no cuDNN frontend)");
  for (const char* goal : {"ring attention at least 0.9 of the fastest unsharded fused attention, forward",
                           "at least 0.85 of it, forward plus backward"})
    bench.report().Goal(goal, "not measured (no cuDNN frontend)");
}

}  // namespace metp::gpu_bench
