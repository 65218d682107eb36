// metp_kernel_bench [threads]: rates of the CPU backend's operations, products and attention as a share of
// sgemm's rate in the same run, memory-bound operations in GB/s of the operands they must touch. Prints a
// table; nothing checks it.

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <limits>
#include <vector>

#include "worker/backend/backend.h"

namespace metp {
namespace {

constexpr auto kTransient = MemoryCategory::kTransient;

/// Shortest time of one call, in seconds: rounds until half a second has passed, at least three.
double Seconds(const std::function<void()>& call) {
  using Clock = std::chrono::steady_clock;
  double best = std::numeric_limits<double>::infinity(), total = 0;
  call();
  for (int round = 0; round < 3 || total < 0.5; ++round) {
    const auto start = Clock::now();
    call();
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    best = std::min(best, seconds);
    total += seconds;
  }
  return best;
}

class KernelBench {
 public:
  explicit KernelBench(int threads)
      : backend_(MakeCpuBackend(threads, ledger_)), peak_(MeasureSgemmFlops(threads)) {
    std::printf("%s; sgemm %.1f GFLOP/s\n", backend_->Describe().c_str(), peak_ * 1e-9);
  }

  void Attention(const char* name, int64_t n, int heads, int kv_heads, int d, bool causal, bool tiled) {
    Tensor q = Values(n, heads * d), k = Values(n, kv_heads * d), v = Values(n, kv_heads * d),
           g = Values(n, heads * d);
    Tensor o = Values(n, heads * d), lse = Values(n, heads), delta = Values(n, heads);
    Tensor dq = Values(n, heads * d), dk = Values(n, kv_heads * d), dv = Values(n, kv_heads * d);
    Tensor visible = backend_->Allocate(n, 2, DType::kI32, kTransient);
    std::vector<int32_t> spans(2 * n);
    for (int64_t i = 0; i < n; ++i) spans[2 * i + 1] = static_cast<int32_t>(causal ? i + 1 : n);
    backend_->CopyFromHost(spans.data(), visible);
    Tensor scores = backend_->Allocate(tiled ? 2 * heads * n : 0, n, DType::kF32, kTransient);
    AttentionBlock block;
    block.q = q;
    block.k = k;
    block.v = v;
    block.visible = visible;
    block.heads = heads;
    block.kv_heads = kv_heads;
    block.head_dim = d;
    block.scale = 1 / std::sqrt(static_cast<float>(d));
    const double product = 2.0 * heads * d * n * n * (causal ? 0.5 : 1);
    if (tiled) block.scores = scores->Rows(0, heads * n);
    Flops(name, "forward", 2 * product, [&] {
      backend_->Fill(o, 0);
      backend_->Fill(lse, -std::numeric_limits<float>::infinity());
      backend_->AttentionForward(block, o, lse);
    });
    backend_->AttentionDelta(g, o, d, delta);
    if (tiled) block.scores = scores;
    Flops(name, "backward", 5 * product,
          [&] { backend_->AttentionBackward(block, g, {}, lse, delta, dq, dk, dv); });
  }

  void Products() {
    const int64_t shapes[][3] = {
        {2048, 512, 512}, {2048, 1408, 512}, {2048, 512, 1408}, {512, 1408, 2048}, {1024, 4096, 512}};
    for (const auto& [m, n, k] : shapes) {
      Tensor a = Values(m, k), b = Values(k, n), c = Values(m, n);
      char name[64];
      std::snprintf(name, sizeof name, "gemm %ldx%ldx%ld", static_cast<long>(m), static_cast<long>(n),
                    static_cast<long>(k));
      Flops(name, "", 2.0 * m * n * k,
            [&] { backend_->Gemm(1, a, Transpose::kNo, b, Transpose::kNo, 0, c); });
    }
  }

  void Pointwise(int64_t n, int64_t h) {
    Tensor x = Values(n, h), y = Values(n, h), z = Values(n, h), u = Values(n, h), w = Values(1, h),
           dw = Values(1, h), db = Values(1, h);
    const double bytes = 4.0 * n * h;
    Bandwidth("add (reads 2, writes 1)", 3 * bytes, [&] { backend_->Add(x, y); });
    Bandwidth("copy (reads 1, writes 1)", 2 * bytes, [&] { backend_->Copy(x, y); });
    Bandwidth("rms norm forward (1, 1)", 2 * bytes,
              [&] { backend_->NormForward(Norm::kRmsNorm, x, w, Matrix{}, 1e-5f, y); });
    Bandwidth("rms norm backward (3, 1)", 4 * bytes,
              [&] { backend_->NormBackward(Norm::kRmsNorm, x, w, 1e-5f, y, z, dw, Matrix{}); });
    Bandwidth("layer norm backward (3, 1)", 4 * bytes,
              [&] { backend_->NormBackward(Norm::kLayerNorm, x, w, 1e-5f, y, z, dw, db); });
    Bandwidth("swiglu forward (2, 1)", 3 * bytes,
              [&] { backend_->ActivationForward(Activation::kSwiGlu, x, y, z); });
    Bandwidth("swiglu backward (3, 3)", 6 * bytes,
              [&] { backend_->ActivationBackward(Activation::kSwiGlu, x, y, z); });
    Bandwidth("gelu forward (1, 1)", 2 * bytes,
              [&] { backend_->ActivationForward(Activation::kGelu, x, Matrix{}, z); });
    Bandwidth("gelu backward (2, 2)", 4 * bytes,
              [&] { backend_->ActivationBackward(Activation::kGelu, x, Matrix{}, z); });
    Bandwidth("column sums (1, 0)", bytes, [&] { backend_->AddColumnSums(x, dw); });
    Tensor total = backend_->Allocate(1, 1, DType::kF64, kTransient);
    Bandwidth("sum of squares (1, 0)", bytes, [&] { backend_->SumSquares(u, total); });
    AdamWStep step{1e-3f, 0.9f, 0.95f, 1e-8f, 0.1f, 0.1f, 0.05f, 1};
    backend_->Fill(z, 1);
    Bandwidth("adamw (4, 3)", 7 * bytes, [&] { backend_->AdamW(step, x, y, z, u); });
    Tensor table = Values(n, 64), positions = backend_->Allocate(n, 1, DType::kI32, kTransient);
    Bandwidth("rope (1, 1)", 2 * bytes, [&] { backend_->Rope(table, false, x); });
    backend_->Fill(positions, 1000);
    Bandwidth("rope table (0, 1)", 256.0 * n, [&] { backend_->RopeTable(positions, 1e4, table); });
  }

  void Loss(int64_t n, int64_t vocabulary) {
    Tensor logits = Values(n, vocabulary), lse = Values(n, 1), logit = Values(n, 1);
    Tensor targets = backend_->Allocate(n, 1, DType::kI32, kTransient);
    backend_->Fill(targets, 5);
    const double bytes = 4.0 * n * vocabulary;
    Bandwidth("cross-entropy forward (1, 0)", bytes,
              [&] { backend_->CrossEntropyForward(logits, targets, 0, lse, logit); });
    Bandwidth("cross-entropy backward (1, 1)", 2 * bytes,
              [&] { backend_->CrossEntropyBackward(logits, targets, 0, lse, 1e-3f); });
  }

 private:
  Tensor Values(int64_t rows, int64_t cols) {
    Tensor tensor = backend_->Allocate(rows, cols, DType::kF32, kTransient);
    std::vector<float> values(rows * cols);
    uint32_t state = 1;
    for (float& x : values) {
      state = state * 1664525u + 1013904223u;
      x = static_cast<float>(state >> 8) / 8388608.0f - 1;
    }
    backend_->CopyFromHost(values.data(), tensor);
    return tensor;
  }
  void Flops(const char* name, const char* what, double flops, const std::function<void()>& call) {
    const double rate = flops / Seconds(call);
    std::printf("  %-34s %-9s %8.1f GFLOP/s  %.3f of sgemm\n", name, what, rate * 1e-9, rate / peak_);
  }
  void Bandwidth(const char* name, double bytes, const std::function<void()>& call) {
    std::printf("  %-44s %8.1f GB/s\n", name, bytes / Seconds(call) * 1e-9);
  }

  MemoryLedger ledger_;
  std::unique_ptr<Backend> backend_;
  double peak_;
};

void Main(int threads) {
  KernelBench bench(threads);
  bench.Attention("attention 4096 causal 4/2 d 64", 4096, 4, 2, 64, true, false);
  bench.Attention("attention 4096 full 4/2 d 64", 4096, 4, 2, 64, false, false);
  bench.Attention("attention 4096 causal 8/8 d 64", 4096, 8, 8, 64, true, false);
  bench.Attention("attention 1024 causal 8/8 d 64", 1024, 8, 8, 64, true, false);
  bench.Attention("attention 2048 causal 2/1 d 128", 2048, 2, 1, 128, true, false);
  bench.Attention("attention 1024 full 4/2 d 64 tiled", 1024, 4, 2, 64, false, true);
  bench.Products();
  bench.Pointwise(8192, 1408);
  bench.Loss(1024, 8192);
}

}  // namespace
}  // namespace metp

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 1;
  if (threads < 1) {
    std::fprintf(stderr, "usage: metp_kernel_bench [threads]; threads is '%s', expected at least 1\n",
                 argv[1]);
    return 2;
  }
  metp::Main(threads);
}
