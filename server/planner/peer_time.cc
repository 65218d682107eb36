#include "server/planner/peer_time.h"

#include <algorithm>

#include "worker/backend/sim/cost_model.h"

namespace metp {

namespace {

class Clock {
 public:
  Clock(const PeerShape& shape, const v1::DeviceProfile& profile)
      : x(shape), cost(profile), link(sim::RingLink(profile, shape.p)) {}

  double Layer() const;
  double Loss() const;
  double Embedding() const;
  double Optimizer() const;

 private:
  /// [rows, inner] times [inner, cols]; each operand and the result once.
  double Gemm(int64_t rows, int64_t cols, int64_t inner) const {
    return cost.Gemm(rows, cols, inner,
                     static_cast<double>(x.e * (rows * inner + inner * cols + rows * cols)));
  }
  /// Reads and writes of `elements` activations.
  double Elements(int64_t elements) const { return cost.Memory(static_cast<double>(x.e * elements)); }
  /// `kernels(rows)` of every tile of the device's rows.
  template <typename Kernels>
  double Tiles(const Kernels& kernels) const {
    const int64_t whole = x.rows() / x.tile(), rest = x.rows() % x.tile();
    return static_cast<double>(whole) * kernels(x.tile()) + (rest > 0 ? kernels(rest) : 0);
  }
  /// All-gather to, or reduce-scatter from, `elements` on each device; all-to-all of as many on each.
  double Collective(int64_t elements) const {
    return (x.p - 1) * sim::MessageSeconds(link, static_cast<double>(x.e * elements) / x.p);
  }
  /// A p-th of all pairs, causal or not, on every device; the ring in p blocks, head chunks in rounds.
  double Attention(bool backward) const;
  /// One way round of K, V, or of it and the sums of their gradients.
  double RingSeconds(bool backward) const;
  /// Q, K, V by tokens to Q, K, V by heads, or back.
  double ScatterHeads() const { return Collective(x.Share(x.q_width()) + x.Share(x.kv_width())); }
  double ScatterResult() const { return Collective(x.Share(x.q_width())); }

  const PeerShape& x;
  const sim::CostModel cost;
  const v1::Link link;
};

double Clock::Attention(bool backward) const {
  const int64_t pairs = x.b * (x.c.causal ? x.s * (x.s + 1) / 2 : x.s * x.s);
  const int64_t blocks = x.peer == Peer::kRing ? x.p : x.chunks();
  const int heads = x.by_heads() ? static_cast<int>(x.c.a / x.p / x.chunks()) : x.c.a;
  const int64_t met = x.by_heads() ? pairs : pairs / x.p / x.p;
  const int64_t q = x.Share(x.chunk_q()), kv = x.Share(x.chunk_kv());
  const auto bytes = static_cast<double>(x.e * (backward ? 4 * q + 2 * kv : 2 * q + kv));
  return static_cast<double>(blocks) * (backward ? cost.AttentionBackward(met, heads, x.c.d, bytes)
                                                 : cost.AttentionForward(met, heads, x.c.d, bytes));
}

double Clock::RingSeconds(bool backward) const {
  if (x.p == 1) return 0;
  const int64_t kv = x.Share(x.kv_width());
  const double there = (x.p - 1) * sim::MessageSeconds(link, static_cast<double>(x.e * kv));
  return backward ? there + x.p * sim::MessageSeconds(link, static_cast<double>(4 * kv)) : there;
}

double Clock::Layer() const {
  const int64_t rows = x.rows(), h = x.c.h, f = x.ffn(), inputs = x.products() - 1;
  // Projections and norm, rotation and residual sum of attention's half of the layer.
  const int64_t parts = x.tensor_parallel() ? x.p : 1, rounds = x.chunks();
  const int64_t q = x.q_width() / parts;
  const int64_t kv = x.tensor_parallel() ? x.kv_width() / parts : 2 * int64_t{x.c.g} * x.c.d;
  const double qkv = static_cast<double>(rounds) * Gemm(rows, (q + kv) / rounds, h);
  const double out = Gemm(rows, h, q);
  const double attention_rest =
      Elements(5 * x.stream_rows() * h) + (x.c.llama ? Elements(2 * rows * (q + kv / 2)) : 0);
  // The MLP, tile by tile, and its norm and residual sum.
  const double mlp_in = Tiles([&](int64_t tile) { return Gemm(tile, inputs * f, h); });
  const double mlp_out = Tiles([&](int64_t tile) { return Gemm(tile, h, f); });
  const double mlp_rest = Tiles([&](int64_t tile) { return Elements((inputs + 1) * tile * f); }) +
                          Elements(5 * x.stream_rows() * h);

  const double others = qkv + out + attention_rest + mlp_in + mlp_out + mlp_rest;
  double again = x.means.equal ? mlp_in + mlp_rest : 0;
  if (x.means.remakes_projections()) again += qkv + out + attention_rest;
  const bool attends_again = x.means.remakes_attention();

  const double gather = Collective(x.layer_matrices());
  const double hidden = Collective(x.S * h);  // an all-gather or a reduce-scatter; an all-reduce is two
  const double attention = Attention(false) + (attends_again ? Attention(false) : 0) + Attention(true);
  switch (x.peer) {
    case Peer::kTensor: {
      const int all_reduces = 4 + (x.means.remakes_projections() ? 1 : 0);
      return 3 * others + again + attention + all_reduces * 2 * hidden;
    }
    case Peer::kTensorSequence: {
      const int moves = 8 + (x.means.equal ? 1 : 0) + (x.means.remakes_projections() ? 2 : 0);
      return 3 * others + again + attention + moves * hidden;
    }
    case Peer::kUlysses:
    case Peer::kUlyssesChunks: {
      double moved = 2 * (ScatterHeads() + ScatterResult());
      if (x.means.equal) moved += ScatterResult();  // O was kept once: by heads
      if (x.means.remakes_projections()) moved += ScatterHeads();
      const double forward = others + Attention(false);
      const double backward = 2 * others + again + attention - Attention(false);
      return std::max(forward, gather) + std::max(backward, 2 * gather) + moved;
    }
    case Peer::kRing: {
      const double there = RingSeconds(false), back = RingSeconds(true);
      const double met = std::max(Attention(false), there), met_back = std::max(Attention(true), back);
      const double forward = std::max(met + others, there + gather);
      const double met_again = attends_again ? met : 0, there_again = attends_again ? there : 0;
      return forward + std::max(met_again + met_back + 2 * others + again, there_again + back + 2 * gather);
    }
  }
  return 0;
}

/// Three products a tile; logits are written in fp32, read for the softmax, and read for their gradient.
double Clock::Loss() const {
  const int64_t h = x.c.h, V = x.vocab();
  const double compute = Tiles([&](int64_t tile) {
    return Gemm(tile, V, h) + Gemm(tile, h, V) + Gemm(V, h, tile) +
           cost.Memory(static_cast<double>((int64_t{3} * 4 + x.e) * tile * V));
  });
  const double hidden = Collective(x.S * h), head = Collective(x.c.V * h);
  return x.tensor_parallel() ? compute + 2 * hidden : std::max(compute, 2 * head);
}

/// Nothing to hide behind: TP sums what the tables' parts gave, FSDP gathers tables and scatters their
/// gradients.
double Clock::Embedding() const {
  // An all-reduce forward, or a reduce-scatter and, backward, an all-gather: as many bytes.
  return 2 * Collective(x.tensor_parallel() ? x.S * x.c.h : (x.c.V + x.c.max_positions) * x.c.h);
}

/// Gradient, master and moments read, all but the gradient written, the compute weight too.
double Clock::Optimizer() const {
  const int64_t size = x.c.layers * x.layer_matrices() + x.tables();
  return cost.Memory(static_cast<double>((28 + (x.e == 2 ? 2 : 0)) * x.Ceil(size)));
}

}  // namespace

double PeerSeconds(const PeerShape& x, int64_t micro_batches, const v1::DeviceProfile& profile) {
  const Clock clock(x, profile);
  return static_cast<double>(micro_batches) *
             (x.c.layers * clock.Layer() + clock.Loss() + clock.Embedding()) +
         clock.Optimizer();
}

}  // namespace metp
