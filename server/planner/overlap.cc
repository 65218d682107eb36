#include "server/planner/overlap.h"

#include <algorithm>
#include <limits>

#include "worker/backend/sim/cost_model.h"
#include "worker/backend/tensor.h"
#include "worker/model/config.h"
#include "worker/ring/partition.h"

namespace metp {

namespace {

constexpr int kMostRanks = 4096;
constexpr int64_t kGradient = 4;  // bytes

/// One plan's shapes, letters as in metp.md; every part as large as the largest.
struct Shapes {
  Shapes(const v1::JobSpec& job, const v1::Plan& plan, const v1::DeviceProfile& device)
      : c(MakeModelConfig(job.model())),
        cost(device),
        link(sim::RingLink(device, plan.degree())),
        p(plan.degree()),
        b(job.train().micro_batch()),
        chunk(Part(job.data().sequence_length(), 2 * p, 0).size()),
        n(int64_t{2} * b * chunk),
        f(Part(c.f, p, 0).size()),
        V(Part(c.V, p, 0).size()),
        h(Part(c.h, p, 0).size()),
        groups(plan.head_groups()),
        tile_rows(plan.tile_rows()),
        full(plan.recompute() == v1::ParallelSpec::RECOMPUTE_FULL),
        none(plan.recompute() == v1::ParallelSpec::RECOMPUTE_NONE),
        tiled(job.parallel().attention() == v1::ParallelSpec::ATTENTION_TILED),
        e(device.precision() == v1::DeviceProfile::PRECISION_BF16 ? 2 : 4) {
    const HeadGroup group = HeadGroups(c.a, c.g, groups).front();
    heads = static_cast<int>(group.q.size());
    wq = group.q.size() * c.d;
    wk = group.kv.size() * c.d;
  }

  double Gemm(int64_t m, int64_t n_cols, int64_t k, int64_t result_bytes, bool adds) const {
    const auto bytes =
        static_cast<double>(e * (m * k + k * n_cols) + (adds ? 2 : 1) * result_bytes * m * n_cols);
    return m == 0 ? 0 : cost.Gemm(m, n_cols, k, bytes);
  }
  /// `kernels(rows)` of every tile of the rank's rows, in seconds.
  template <typename Kernels>
  double Tiles(const Kernels& kernels) const {
    if (tile_rows <= 0 || tile_rows >= n) return kernels(n);
    const int64_t whole = n / tile_rows, rest = n % tile_rows;
    return static_cast<double>(whole) * kernels(tile_rows) + (rest > 0 ? kernels(rest) : 0);
  }
  /// What a shard's gradient, `elements`, takes less in its first tile, where it is written and not added to.
  double FirstTile(int64_t elements) const {
    return static_cast<double>(kGradient * elements) / cost.profile().gemm().bytes_per_second();
  }
  double Message(double bytes) const { return sim::MessageSeconds(link, bytes); }

  const ModelConfig c;
  const sim::CostModel cost;
  const v1::Link link;
  const int p, b;
  const int64_t chunk, n, f, V, h;
  const int groups;
  const int64_t tile_rows;
  const bool full, none, tiled;
  const int64_t e;  // bytes of a weight or activation at work; gradients have 4
  int heads = 0;
  int64_t wq = 0, wk = 0;  // a d / c, g d / c
};

/// A head group's weights, as one hop carries them: e h/p (2a + 2g) d / c.
double GatherBytes(const Shapes& x, int64_t element) {
  return static_cast<double>(element * x.h * 2 * (x.wq + x.wk));
}

/// One ring step of attention: the own queries against another rank's keys, chunk by chunk. Causal: two pairs of
/// chunks are visible; in both directions four.
double AttentionStep(const Shapes& x, bool backward) {
  const int64_t tile = x.tiled && x.tile_rows > 0 ? std::min(x.chunk, x.tile_rows) : x.chunk;
  if (tile == 0) return 0;
  const auto rows = static_cast<double>(tile), keys = static_cast<double>(x.chunk);
  const auto wq = static_cast<double>(x.wq), wk = static_cast<double>(x.wk), e = static_cast<double>(x.e);
  const double q = e * rows * wq, kv = e * keys * 2 * wk, lse = kGradient * rows * x.heads;
  const double scores = x.tiled ? kGradient * x.heads * rows * keys : 0;
  double kernel = 0;
  if (backward) {
    const double bytes = 2 * q + kv + 2 * lse + 2 * kGradient * (rows * wq + keys * 2 * wk) + 6 * scores;
    kernel = x.cost.AttentionBackward(tile * x.chunk, x.heads, x.c.d, bytes);
  } else {
    const double o = 2 * kGradient * rows * wq;  // merged in fp32
    kernel = x.cost.AttentionForward(tile * x.chunk, x.heads, x.c.d, q + o + kv + 2 * lse + 4 * scores);
  }
  return kernel * (keys / rows) * x.b * (x.c.causal ? 2 : 4);
}

PassOverlap AttentionForward(const Shapes& x) {
  // The next group's weights; with one group, made again, the gradients of the layer above on their way back.
  const double riders = x.groups > 1 ? GatherBytes(x, x.e) : x.full ? GatherBytes(x, kGradient) : 0;
  const double kv = static_cast<double>(x.e * x.n * 2 * x.wk);
  return {Pass::kAttentionForward, true, AttentionStep(x, false), x.Message(kv + riders)};
}

PassOverlap AttentionBackward(const Shapes& x) {
  const double kv = static_cast<double>((x.e + kGradient) * x.n * 2 * x.wk);
  // The next group's weights and the last one's gradients; with one group, the weights that the layer below needs.
  const double riders = x.groups > 1 ? GatherBytes(x, x.e + kGradient) : x.full ? GatherBytes(x, x.e) : 0;
  const double clear = x.cost.Memory(static_cast<double>(kGradient * x.n * 2 * x.wk));  // of the contribution
  return {Pass::kAttentionBackward, true, AttentionStep(x, true) + clear, x.Message(kv + riders)};
}

/// dK, dV come home behind dWo, dWq and the query part of dN.
PassOverlap AttentionHome(const Shapes& x) {
  double compute = x.Gemm(x.c.h, x.wq, x.n, kGradient, false) * 2 + x.Gemm(x.n, x.c.h, x.wq, kGradient, true);
  if (x.c.llama) {
    compute += x.cost.Memory(static_cast<double>(kGradient * x.n * (x.c.d + 2 * x.wq)));  // rotated back
  }
  if (x.e != kGradient) compute += x.cost.Memory(static_cast<double>((x.e + kGradient) * x.n * x.wq));
  return {Pass::kAttentionHome, true, compute, x.Message(static_cast<double>(kGradient * x.n * 2 * x.wk))};
}

/// The gradients of the layer above are aboard during the first group: with four groups or more not the rule.
PassOverlap OutputProjection(const Shapes& x) {
  return {Pass::kOutputProjection, true, x.Gemm(x.n, x.h, x.wq, kGradient, true),
          x.Message(static_cast<double>(x.e * x.h * x.wq) + (x.groups < 4 ? GatherBytes(x, kGradient) : 0))};
}

PassOverlap Mlp(const Shapes& x, bool backward) {
  const int64_t inputs = x.c.llama ? 2 : 1, h = x.c.h, f = x.f;
  const double compute = x.Tiles([&](int64_t rows) {
    double seconds = x.Gemm(rows, inputs * f, h, x.e, false);
    if (!backward) {
      return seconds + x.cost.Memory(static_cast<double>(x.e * rows * f * (inputs + 1))) +
             x.Gemm(rows, h, f, kGradient, true);
    }
    seconds += x.Gemm(rows, f, h, x.e, false);
    seconds += x.cost.Memory(static_cast<double>(2 * x.e * rows * f * (inputs + 1)));
    seconds += x.Gemm(f, h, rows, kGradient, true) + x.Gemm(h, inputs * f, rows, kGradient, true);
    return seconds + x.Gemm(rows, h, inputs * f, kGradient, true);
  });
  const int64_t shard = (inputs + 1) * h * f;
  const double first = backward ? x.FirstTile(shard) : 0;
  // Attention's first group; and where nothing comes before it, the gradients of the layer above.
  const double riders = GatherBytes(x, backward && x.none ? x.e + kGradient : x.e);
  const double bytes = static_cast<double>((backward ? x.e + kGradient : x.e) * shard) + riders;
  return {backward ? Pass::kMlpBackward : Pass::kMlpForward, true, compute - first, x.Message(bytes)};
}

PassOverlap LossPass(const Shapes& x, bool backward) {
  const int64_t h = x.c.h, V = x.V;
  const double compute = x.Tiles([&](int64_t rows) {
    const double logits = x.Gemm(rows, V, h, kGradient, false);
    if (!backward) return logits + x.cost.Memory(static_cast<double>(kGradient * rows * V));
    double seconds = logits + x.cost.Memory(static_cast<double>(2 * kGradient * rows * V));
    if (x.e != kGradient) seconds += x.cost.Memory(static_cast<double>((kGradient + x.e) * rows * V));
    return seconds + x.Gemm(rows, h, V, kGradient, true) + x.Gemm(V, h, rows, kGradient, true);
  });
  const double bytes = static_cast<double>((backward ? x.e + kGradient : x.e) * V * h);
  const double first = backward ? x.FirstTile(V * h) : 0;
  return {backward ? Pass::kLossBackward : Pass::kLossForward, true, compute - first,
          x.Message(bytes + (!backward && x.full ? GatherBytes(x, x.e) : 0))};
}

PassOverlap Embedding(const Shapes& x, bool backward) {
  const double bytes = static_cast<double>((backward ? kGradient : x.e) * x.V * x.c.h);
  return {backward ? Pass::kEmbeddingBackward : Pass::kEmbeddingForward, false, 0, x.Message(bytes)};
}

bool FullOverlapAt(v1::JobSpec job, v1::Plan plan, const v1::DeviceProfile& profile, int64_t s, int degree) {
  job.mutable_data()->set_sequence_length(static_cast<int32_t>(s));  // no pass depends on the position table
  plan.set_degree(degree);
  return FullOverlap(OverlapOf(job, plan, profile));
}

}  // namespace

std::vector<PassOverlap> OverlapOf(const v1::JobSpec& job, const v1::Plan& plan,
                                   const v1::DeviceProfile& profile) {
  if (plan.degree() < 2) return {};
  const Shapes x(job, plan, profile);
  std::vector<PassOverlap> passes = {Embedding(x, false), AttentionForward(x), Mlp(x, false),
                                     LossPass(x, false), LossPass(x, true)};
  if (!x.full && !x.none) passes.push_back(OutputProjection(x));
  passes.insert(passes.end(), {Mlp(x, true), AttentionBackward(x), AttentionHome(x), Embedding(x, true)});
  return passes;
}

bool FullOverlap(const std::vector<PassOverlap>& passes) {
  return std::all_of(passes.begin(), passes.end(),
                     [](const PassOverlap& pass) { return !pass.verdict || pass.hides(); });
}

int64_t SmallestFullOverlapSequence(const v1::JobSpec& job, const v1::Plan& plan,
                                    const v1::DeviceProfile& profile) {
  int64_t below = 0, at = std::numeric_limits<int32_t>::max() - 1;
  if (!FullOverlapAt(job, plan, profile, at, plan.degree())) return 0;
  while (at - below > 1) {  // computing grows faster with s than communication
    const int64_t middle = below + (at - below) / 2;
    (FullOverlapAt(job, plan, profile, middle, plan.degree()) ? at : below) = middle;
  }
  return at;
}

int LargestFullOverlapDegree(const v1::JobSpec& job, const v1::Plan& plan, const v1::DeviceProfile& profile) {
  int largest = 1;
  for (int degree = 2; degree <= kMostRanks; degree += degree < 64 ? 1 : degree < 512 ? 8 : 64) {
    if (FullOverlapAt(job, plan, profile, job.data().sequence_length(), degree)) largest = degree;
  }
  return largest;
}

}  // namespace metp
