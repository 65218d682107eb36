// Every kernel of kernels.h that memory bounds, with the types that a bf16 step gives it. Bytes are those that must move:
// each operand once in and each result once out.

#include <algorithm>
#include <cmath>
#include <set>

#include "absl/strings/str_format.h"
#include "tests/bench/gpu/parts.h"

namespace metp::gpu_bench {
namespace {

constexpr auto kF32 = DType::kF32, kBF16 = DType::kBF16;
constexpr float kEps = 1e-5f;

class MemoryBound {
 public:
  explicit MemoryBound(Bench& bench)
      : bench_(bench), backend_(bench.backend()), s_(bench.shapes()), n_(s_.n), h_(s_.h) {}

  void Run() {
    Elementwise();
    Sums();
    Norms();
    Ropes();
    Activations();
    Embedding();
    Losses();
    Optimizer();
    Attention();
    bench_.rates().moved_bytes = bytes_ / seconds_;
    bench_.report().Goal("memory-bound kernels at least 0.8 of copy bandwidth",
                         absl::StrFormat("%.3f at worst (%s), %.3f together", worst_, worst_name_,
                                         bytes_ / seconds_ / bench_.rates().copied_bytes));
  }

 private:
  using Operands = std::vector<Tensor>;

  struct Shape {
    int64_t rows, cols;
    DType type;
    int64_t bytes() const { return rows * cols * SizeOf(type); }
  };
  Shape Wide() const { return {n_, h_, kF32}; }
  Shape Narrow() const { return {n_, h_, kBF16}; }

  /// Times `call` on sets of random operands of these shapes; `bytes` must move. `prepare` is not timed.
  void Measure(const std::string& name, const std::vector<Shape>& shapes, int64_t bytes,
               const std::function<void(Operands&)>& call,
               const std::function<void(Operands&)>& prepare = {}) {
    auto sets = bench_.Sets<Operands>(bytes, [&] {
      Operands operands;
      for (const Shape& x : shapes) operands.push_back(bench_.Values(x.rows, x.cols, x.type));
      if (prepare) prepare(operands);
      return operands;
    });
    const double seconds =
        bench_.Median([&](int round) { call(sets[static_cast<size_t>(round) % sets.size()]); });
    const double rate = static_cast<double>(bytes) / seconds, share = rate / bench_.rates().copied_bytes;
    // What takes as long as some starts of kernels says nothing about memory.
    const bool small = seconds < 10 * bench_.rates().kernel_seconds;
    bench_.report().Add({name, seconds, rate * 1e-9, share, small ? "so small that its start counts" : ""});
    if (small) return;
    bytes_ += static_cast<double>(bytes);
    seconds_ += seconds;
    if (share < worst_) worst_name_ = name;
    worst_ = std::min(worst_, share);
  }

  void Elementwise() {
    const int64_t wide = Wide().bytes(), narrow = Narrow().bytes();
    Measure("fill fp32", {Wide()}, wide, [&](Operands& x) { backend_.Fill(x[0], 0.5f); });
    Measure("fill bf16", {Narrow()}, narrow, [&](Operands& x) { backend_.Fill(x[0], 0.5f); });
    Measure("copy fp32 to bf16", {Wide(), Narrow()}, wide + narrow,
            [&](Operands& x) { backend_.Copy(x[0], x[1]); });
    Measure("copy bf16 to fp32", {Narrow(), Wide()}, wide + narrow,
            [&](Operands& x) { backend_.Copy(x[0], x[1]); });
    Measure("copy bf16", {Narrow(), Narrow()}, 2 * narrow, [&](Operands& x) { backend_.Copy(x[0], x[1]); });
    Measure("add bf16 to fp32", {Narrow(), Wide()}, narrow + 2 * wide,
            [&](Operands& x) { backend_.Add(x[0], x[1]); });
    Measure("add fp32 to fp32", {Wide(), Wide()}, 3 * wide, [&](Operands& x) { backend_.Add(x[0], x[1]); });
    Measure("add bias, bf16", {{1, h_, kF32}, Narrow()}, 2 * narrow,
            [&](Operands& x) { backend_.AddBias(x[0], x[1]); });
  }

  void Sums() {
    const Tensor total = backend_.Allocate(1, 1, DType::kF64, MemoryCategory::kTransient);
    backend_.Fill(total, 0);
    Measure("column sums, bf16", {Narrow(), {1, h_, kF32}}, Narrow().bytes(),
            [&](Operands& x) { backend_.AddColumnSums(x[0], x[1]); });
    Measure("column sums, fp32", {Wide(), {1, h_, kF32}}, Wide().bytes(),
            [&](Operands& x) { backend_.AddColumnSums(x[0], x[1]); });
    Measure("sum of squares", {Wide()}, Wide().bytes(),
            [&](Operands& x) { backend_.SumSquares(x[0], total); });
    const Tensor targets = bench_.Integers(bench_.RandomIntegers(n_, s_.V));
    Measure("loss sum", {{n_, 1, kF32}, {n_, 1, kF32}}, 12 * n_,
            [&](Operands& x) { backend_.LossSum(x[0], x[1], targets, total); });
  }

  void Norms() {
    const Shape row{1, h_, kF32};
    for (Norm norm : {Norm::kRmsNorm, Norm::kLayerNorm}) {
      const bool rms = norm == Norm::kRmsNorm;
      const std::string name = rms ? "RMS norm" : "layer norm";
      Measure(name + " forward, fp32 in", {Wide(), row, row, Narrow()}, Wide().bytes() + Narrow().bytes(),
              [&](Operands& x) { backend_.NormForward(norm, x[0], x[1], Bias(rms, x[2]), kEps, x[3]); });
      Measure(name + " forward, bf16 in", {Narrow(), row, row, Narrow()}, 2 * Narrow().bytes(),
              [&](Operands& x) { backend_.NormForward(norm, x[0], x[1], Bias(rms, x[2]), kEps, x[3]); });
      Measure(name + " backward", {Narrow(), row, Wide(), Narrow(), row, row},
              3 * Narrow().bytes() + Wide().bytes(), [&](Operands& x) {
                backend_.NormBackward(norm, x[0], x[1], kEps, x[2], x[3], x[4], Bias(rms, x[5]));
              });
    }
  }
  static Matrix Bias(bool rms, const Tensor& bias) { return rms ? Matrix{} : bias.view(); }

  void Ropes() {
    const Shape table{n_, s_.d, kF32};
    const Tensor positions = bench_.Integers(bench_.RandomIntegers(n_, n_ * s_.p));
    Measure("rotary table", {table}, table.bytes() + 4 * n_,
            [&](Operands& x) { backend_.RopeTable(positions, 5e5, x[0]); });
    Measure("rotary, bf16", {table, {n_, s_.heads * s_.d, kBF16}}, table.bytes() + 4 * n_ * s_.heads * s_.d,
            [&](Operands& x) { backend_.Rope(x[0], false, x[1]); });
    Measure("rotary inverse, fp32", {table, {n_, s_.heads * s_.d, kF32}},
            table.bytes() + 8 * n_ * s_.heads * s_.d, [&](Operands& x) { backend_.Rope(x[0], true, x[1]); });
  }

  void Activations() {
    const int64_t one = Narrow().bytes();
    const Shape both{n_, 2 * h_, kBF16};  // u | v side by side, as in the MLP
    Measure("SwiGLU forward, in place", {both}, 3 * one, [&](Operands& x) {
      const Matrix u = x[0]->Cols(0, h_);
      backend_.ActivationForward(Activation::kSwiGlu, u, x[0]->Cols(h_, 2 * h_), u);
    });
    Measure("SwiGLU backward", {both, Narrow()}, 6 * one, [&](Operands& x) {
      backend_.ActivationBackward(Activation::kSwiGlu, x[0]->Cols(0, h_), x[0]->Cols(h_, 2 * h_), x[1]);
    });
    Measure("GELU forward, in place", {Narrow()}, 2 * one,
            [&](Operands& x) { backend_.ActivationForward(Activation::kGelu, x[0], {}, x[0]); });
    Measure("GELU backward", {Narrow(), Narrow()}, 4 * one,
            [&](Operands& x) { backend_.ActivationBackward(Activation::kGelu, x[0], {}, x[1]); });
  }

  void Embedding() {
    const int64_t rows = s_.V / s_.p;
    const std::vector<int32_t> values = bench_.RandomIntegers(n_, rows);
    const Tensor ids = bench_.Integers(values);
    const auto distinct = static_cast<int64_t>(std::set<int32_t>(values.begin(), values.end()).size());
    Measure("embedding gather", {{rows, h_, kBF16}, Narrow()}, 2 * distinct * h_ + Narrow().bytes() + 4 * n_,
            [&](Operands& x) { backend_.EmbeddingGather(ids, 0, x[0], false, x[1]); });
    Measure("embedding scatter-add, bf16 into fp32", {Narrow(), {rows, h_, kF32}},
            8 * distinct * h_ + Narrow().bytes() + 4 * n_,
            [&](Operands& x) { backend_.EmbeddingScatterAdd(ids, 0, x[0], x[1]); });
  }

  void Losses() {
    const Shape logits{std::min(s_.tile_rows, n_), s_.V / s_.p, kF32}, column{logits.rows, 1, kF32};
    const Tensor targets = bench_.Integers(bench_.RandomIntegers(logits.rows, s_.V));
    Measure("cross-entropy forward", {logits, column, column}, logits.bytes(),
            [&](Operands& x) { backend_.CrossEntropyForward(x[0], targets, 0, x[1], x[2]); });
    Measure("cross-entropy backward", {logits, column}, 2 * logits.bytes(),
            [&](Operands& x) { backend_.CrossEntropyBackward(x[0], targets, 0, x[1], 1e-3f); });
  }

  void Optimizer() {
    const AdamWStep step{1e-4f, 0.9f, 0.95f, 1e-8f, 0.1f, 0.1f, 0.05f, 1};
    Measure(
        "AdamW", {Wide(), Wide(), Wide(), Wide()}, 7 * Wide().bytes(),
        [&](Operands& x) { backend_.AdamW(step, x[0], x[1], x[2], x[3]); },
        [&](Operands& x) { backend_.Fill(x[2], 0.5f); });  // second moments are not negative
  }

  void Attention() {
    const int64_t width = s_.heads * s_.d;
    Measure("attention delta", {{n_, width, kBF16}, {n_, width, kBF16}, {n_, s_.heads, kF32}},
            4 * n_ * width + 4 * n_ * s_.heads,
            [&](Operands& x) { backend_.AttentionDelta(x[0], x[1], static_cast<int>(s_.d), x[2]); });
    Tiled();
  }

  /// The pointwise middle of tiled attention, over the scores of one tile of a head group.
  void Tiled() {
    const int heads = s_.heads / s_.groups;
    const int64_t rows = std::min(s_.tile_rows, n_), scores = heads * rows * n_;
    const Shape q{rows, heads * s_.d, kBF16}, o{rows, heads * s_.d, kF32}, column{rows, heads, kF32};
    std::vector<int32_t> seen(static_cast<size_t>(2 * rows));
    for (int64_t i = 0; i < rows; ++i) seen[2 * i + 1] = static_cast<int32_t>(n_);
    const Tensor visible = bench_.Integers(seen, 2);
    const Tensor kv = bench_.Values(n_, s_.wk());
    const auto block = [&](const Tensor& q, const Tensor& scores) {
      AttentionBlock b;
      b.q = q;
      b.k = b.v = kv;
      b.visible = visible;
      b.heads = heads;
      b.kv_heads = s_.kv_heads / s_.groups;
      b.head_dim = static_cast<int>(s_.d);
      b.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(s_.d)));
      b.scores = scores;
      return b;
    };
    Measure(
        "tiled softmax forward", {q, {heads * rows, n_, kF32}, o, column}, 6 * scores + 2 * o.bytes(),
        [&](Operands& x) { cuda::TiledSoftmaxForward(backend_.stream(), block(x[0], x[1]), x[2], x[3]); });
    Measure(
        "tiled softmax backward", {q, {2 * heads * rows, n_, kF32}, column, column}, 12 * scores,
        [&](Operands& x) { cuda::TiledSoftmaxBackward(backend_.stream(), block(x[0], x[1]), x[2], x[3]); });
  }

  Bench& bench_;
  cuda::CudaBackend& backend_;
  const Shapes& s_;
  const int64_t n_, h_;
  double bytes_ = 0, seconds_ = 0;  // of all that are not small
  double worst_ = INFINITY;
  std::string worst_name_ = "none is large enough";
};

}  // namespace

void MeasureMemoryBound(Bench& bench) {
  bench.report().Section(
      absl::StrFormat("Kernels bound by memory, %d rows of %d", bench.shapes().n, bench.shapes().h), "GB/s",
      "the copy");
  MemoryBound(bench).Run();
}

}  // namespace metp::gpu_bench
