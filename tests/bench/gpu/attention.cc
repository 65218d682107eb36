// Fused attention of one block: n queries against n keys, causal (the diagonal of a ring's table of blocks) or seen
// whole (all others), for one head group and for all heads.

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "absl/strings/str_format.h"
#include "tests/bench/gpu/device.h"
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
    block_.mask = causal ? BlockMask::kDiagonal : BlockMask::kNone;
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

  /// So often that the backend has chosen who makes these blocks.
  void Choose() {
    for (int i = 0; i < 10; ++i) {
      Forward();
      Backward();
    }
    backend_.Synchronize();
  }
  void Forward() { backend_.AttentionForward(block_, o_, lse_); }
  void Backward() {
    backend_.AttentionBackward(block_, d_o_, narrow_o_, kept_lse_, delta_, dq_, d_kv_->Cols(0, wk_),
                               d_kv_->Cols(wk_, 2 * wk_));
  }
  const AttentionBlock& block() const { return block_; }
  Matrix d_o() const { return d_o_; }
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

/// The library by itself on the same operands: whole attention of these tokens on one device, nothing merged.
class Peer {
 public:
  Peer(Bench& bench, cuda::FusedAttention& library, const Block& block) : library_(library) {
    const AttentionBlock& x = block.block();
    const int64_t n = x.q.rows, wk = x.k.cols;
    shape_ = cuda::FusedBlockOf(x);
    forward_workspace_ = library.ForwardWorkspace(shape_).value_or(-1);
    with_gradients_ = shape_;
    with_gradients_.o_stride = x.q.cols;
    with_gradients_.d_o_stride = block.d_o().stride;
    backward_workspace_ = library.BackwardWorkspace(with_gradients_).value_or(-1);
    if (!taken()) return;
    o_ = bench.Values(n, x.q.cols);
    lse_ = bench.Values(x.heads, n, DType::kF32);
    dq_ = bench.Values(n, x.q.cols);
    dk_ = bench.Values(n, wk);
    dv_ = bench.Values(n, wk);
    workspace_ = bench.Values(1, std::max(forward_workspace_, backward_workspace_) / 4 + 1, DType::kF32);
    forward_ = {x.q.data, x.k.data, x.v.data, o_->data, lse_->f32(), workspace_->data};
    backward_ = {x.q.data,    x.k.data,  x.v.data,  o_->data,  block.d_o().data,
                 lse_->f32(), dq_->data, dk_->data, dv_->data, workspace_->data};
  }
  bool taken() const { return forward_workspace_ >= 0 && backward_workspace_ >= 0; }
  void Forward() { library_.Forward(shape_, forward_); }
  void Backward() { library_.Backward(with_gradients_, backward_); }

 private:
  cuda::FusedAttention& library_;
  cuda::FusedBlock shape_, with_gradients_;
  int64_t forward_workspace_ = -1, backward_workspace_ = -1;
  Tensor o_, lse_, dq_, dk_, dv_, workspace_;
  cuda::FusedForward forward_;
  cuda::FusedBackward backward_;
};

/// Seconds of ours over the library's, forward and forward plus backward; 0: no library.
struct Shares {
  double forward = 0, both = 0;
};

Shares Measure(Bench& bench, cuda::FusedAttention* library, int heads, int kv_heads, bool causal) {
  Block block(bench, heads, kv_heads, causal);
  block.Choose();
  std::vector<Call> calls = {[&](int) { block.Forward(); }, [&](int) { block.Backward(); }};
  std::optional<Peer> peer;
  if (library != nullptr) peer.emplace(bench, *library, block);
  const bool compared = peer.has_value() && peer->taken();
  if (compared) {
    calls.emplace_back([&](int) { peer->Forward(); });
    calls.emplace_back([&](int) { peer->Backward(); });
  }
  const std::vector<double> seconds = bench.Medians(calls);
  Rates& rates = bench.rates();
  const std::string what =
      absl::StrFormat("%d x %d %s, %d/%d heads of %d", bench.shapes().n, bench.shapes().n,
                      causal ? "causal" : "full", heads, kv_heads, bench.shapes().d);
  const auto add = [&](const std::string& who, double products, double time) {
    const double rate = products * block.product_flops() / time;
    bench.report().Add({what + ", " + who, time, rate * 1e-12, rate / rates.product_flops, ""});
    return rate;
  };
  const double forward = add("forward", 2, seconds[0]), backward = add("backward", 5, seconds[1]);
  add("forward + backward", 7, seconds[0] + seconds[1]);
  double peer_forward = 0, peer_backward = 0;
  Shares shares;
  if (compared) {
    peer_forward = add(library->Describe() + " alone, forward", 2, seconds[2]);
    peer_backward = add(library->Describe() + " alone, backward", 5, seconds[3]);
    shares = {seconds[2] / seconds[0], (seconds[2] + seconds[3]) / (seconds[0] + seconds[1])};
  }
  if (!causal && heads == bench.shapes().heads / bench.shapes().groups) {
    rates.attention_forward_flops = forward;
    rates.attention_backward_flops = backward;
    rates.peer_forward_flops = peer_forward;
    rates.peer_backward_flops = peer_backward;
  }
  return shares;
}

}  // namespace

void MeasureAttention(Bench& bench) {
  const Shapes& s = bench.shapes();
  bench.report().Section("Fused attention, bf16, products that the mask leaves", "TFLOP/s", "the ceiling");
  const absl::StatusOr<std::unique_ptr<cuda::FusedAttention>> library = OpenLibrary(bench.backend().stream());
  if (!library.ok()) bench.report().Say("peer: none: " + std::string(library.status().message()));
  // The goals' is the worst of the four.
  Shares worst{INFINITY, INFINITY};
  for (bool causal : {true, false}) {
    for (int groups : {s.groups, 1}) {
      const Shares found = Measure(bench, library.ok() ? library->get() : nullptr, s.heads / groups,
                                   s.kv_heads / groups, causal);
      worst = {std::min(worst.forward, found.forward), std::min(worst.both, found.both)};
    }
  }
  const auto share = [&](double of) {
    return of > 0 ? absl::StrFormat("%.3f of %s, the worst of four shapes", of, (*library)->Describe())
                  : "not measured: no library takes all of the shapes";
  };
  bench.report().Goal("ring attention at least 0.9 of the fastest unsharded fused attention, forward",
                      share(worst.forward));
  bench.report().Goal("at least 0.85 of it, forward plus backward", share(worst.both));
}

}  // namespace metp::gpu_bench
