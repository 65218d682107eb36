// metp_attention_memory [multiple ...]: peak memory of one attention block, forward and backward, as METP, tensor
// parallelism (TP) and TP with sequence parallelism run it, by the ledger on the CPU backend. A rank's own weights
// and gradients are apart on both sides. METP's ring slots are counted, and so are the weights and gradients that
// it has under way, which do not grow with s: the last table takes them off. a = g = 32, fp32, s = 16 h and 32 h
// unless other multiples are given. Also says whether all ways computed the same.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/bench/attention/attention_block.h"
#include "worker/ring/attention.h"

namespace metp {

Tensor Upload(Backend& backend, MemoryCategory category, Values which, int64_t first, int64_t rows,
              int64_t column, int64_t cols) {
  // Weights of the scale that keeps results near one.
  const float scale = which >= kWq ? 0.1f : 1.0f;
  std::vector<float> values(rows * cols);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < cols; ++j) values[i * cols + j] = scale * ValueOf(which, first + i, column + j);
  }
  Tensor x = backend.Allocate(rows, cols, DType::kF32, category);
  backend.CopyFromHost(values.data(), x);
  return x;
}

namespace {

/// One rank of METP's block.
class MetpRank {
 public:
  MetpRank(const BlockShape& block, int groups, Communicator& communicator)
      : block_(block), ring_(*backend_, communicator) {
    const int p = communicator.size(), r = communicator.rank();
    shape_ = {block.h(), block.a, block.a, block.d, HeadGroups(block.a, block.a, groups), false, 0};
    const Range rows = Part(block.h(), p, r);
    for (const HeadGroup& group : shape_.groups) {
      const int64_t from = group.q.begin * block.d, w = group.q.size() * block.d;
      Tensor qkv = backend_->Allocate(rows.size(), 3 * w, DType::kF32, MemoryCategory::kWeights);
      for (int i = 0; i < 3; ++i) {
        const Tensor part = Upload(*backend_, MemoryCategory::kWeights, static_cast<Values>(kWq + i),
                                   rows.begin, rows.size(), from, w);
        backend_->Copy(part, qkv->Cols(i * w, (i + 1) * w));
      }
      // Kept transposed: [h/p, w].
      Tensor out = backend_->Allocate(rows.size(), w, DType::kF32, MemoryCategory::kWeights);
      std::vector<float> values(rows.size() * w);
      for (int64_t i = 0; i < rows.size(); ++i) {
        for (int64_t j = 0; j < w; ++j) values[i * w + j] = 0.1f * ValueOf(kWo, from + j, rows.begin + i);
      }
      backend_->CopyFromHost(values.data(), out);
      Tensor d_qkv = backend_->Allocate(rows.size(), 3 * w, DType::kF32, MemoryCategory::kGradients);
      Tensor d_out = backend_->Allocate(rows.size(), w, DType::kF32, MemoryCategory::kGradients);
      backend_->Fill(d_qkv, 0);
      backend_->Fill(d_out, 0);
      weights_.groups.push_back({qkv, out});
      gradients_.groups.push_back({d_qkv, d_out});
      for (Tensor* x : {&qkv, &out, &d_qkv, &d_out}) memory_.push_back(std::move(*x));
    }
    fixed_ = ledger_.current_total();
    tokens_.split = {block.s, p};
    tokens_.rank = r;
    tokens_.n = tokens_.RowsOf(r);
    std::vector<int32_t> visible;
    for (const Range& chunk : tokens_.split.Chunks(r)) {
      tokens_.seen.push_back({0, chunk.end});
      for (int64_t at = chunk.begin; at < chunk.end; ++at)
        visible.insert(visible.end(), {0, static_cast<int32_t>(at + 1)});
    }
    tokens_.visible = backend_->Allocate(tokens_.n, 2, DType::kI32, MemoryCategory::kActivations);
    backend_->CopyFromHost(visible.data(), tokens_.visible);
  }

  void Run(BlockResult& result, std::mutex& mutex) {
    AttentionUnit unit(ring_, shape_, tokens_);
    const Tensor N = Own(kInput), O = Make(block_.h()), LSE = Make(block_.a);
    ledger_.ResetPeaks();
    {
      Tensor Y = Make(block_.h());
      backend_->Fill(Y, 0);
      unit.Forward(weights_, unit.Prefetch(weights_), N, O, LSE, Y);
      Keep(Y, result.Y, mutex);
    }
    const Tensor dY = Own(kOutputGradient), dN = Make(block_.h());
    backend_->Fill(dN, 0);
    unit.Backward(weights_, gradients_, unit.Prefetch(weights_), {N, O, LSE}, dY, dN);
    ring_.Drain(Pass::kFinish);
    Keep(dN, result.dX, mutex);
    std::lock_guard lock(mutex);
    result.peak_bytes = std::max(result.peak_bytes, ledger_.peak_total() - fixed_);
  }

 private:
  Tensor Make(int64_t cols) {
    return backend_->Allocate(tokens_.n, cols, DType::kF32, MemoryCategory::kActivations);
  }
  Tensor Own(Values which) {
    Tensor x = Make(block_.h());
    int64_t row = 0;
    for (const Range& chunk : tokens_.split.Chunks(tokens_.rank)) {
      const Tensor part =
          Upload(*backend_, MemoryCategory::kActivations, which, chunk.begin, chunk.size(), 0, block_.h());
      backend_->Copy(part, x->Rows(row, row + chunk.size()));
      row += chunk.size();
    }
    return x;
  }
  void Keep(const Tensor& x, std::vector<float>& whole, std::mutex& mutex) {
    std::lock_guard lock(mutex);
    whole.resize(block_.s * block_.h());
    int64_t row = 0;
    for (const Range& chunk : tokens_.split.Chunks(tokens_.rank)) {
      backend_->CopyToHost(x->Rows(row, row + chunk.size()), whole.data() + chunk.begin * block_.h());
      row += chunk.size();
    }
  }

  const BlockShape& block_;
  MemoryLedger ledger_;
  const std::unique_ptr<Backend> backend_ = MakeCpuBackend(1, ledger_);
  Ring ring_;
  std::vector<Tensor> memory_;
  AttentionShape shape_;
  TokenRows tokens_;
  AttentionParameters weights_, gradients_;
  int64_t fixed_ = 0;
};

BlockResult Metp(const BlockShape& shape, int p, int groups) {
  return OnRanks(p, [&](Communicator& communicator, BlockResult& result, std::mutex& mutex) {
    MetpRank(shape, groups, communicator).Run(result, mutex);
  });
}

/// Largest difference of results over the largest result.
double Difference(const std::vector<float>& a, const std::vector<float>& b) {
  double most = 0, difference = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    most = std::max(most, static_cast<double>(std::abs(a[i])));
    difference = std::max(difference, static_cast<double>(std::abs(a[i] - b[i])));
  }
  return difference / most;
}

constexpr int kRings[] = {2, 4, 8};
constexpr size_t kWays = 4;  // TP; TP + SP; METP with c = p; METP with c = 32

struct Table {
  int64_t multiple = 0;
  double elements = 0;                                  // s h
  std::array<std::array<double, kWays>, 3> peaks = {};  // elements, by ring and way
  double worst = 0;                                     // difference between the ways' results
};

Table Measure(int64_t multiple) {
  BlockShape shape;
  shape.s = multiple * shape.h();
  Table table{multiple, static_cast<double>(shape.s * shape.h())};
  for (size_t i = 0; i < std::size(kRings); ++i) {
    const int p = kRings[i];
    const BlockResult ways[kWays] = {TensorParallel(shape, p, false), TensorParallel(shape, p, true),
                                     Metp(shape, p, p), Metp(shape, p, 32)};
    for (size_t way = 0; way < kWays; ++way) {
      table.peaks[i][way] = static_cast<double>(ways[way].peak_bytes) / 4;
      table.worst =
          std::max({table.worst, Difference(ways[0].Y, ways[way].Y), Difference(ways[0].dX, ways[way].dX)});
    }
  }
  return table;
}

/// Peaks over `elements`, those of `less` taken off first; and how much less than TP's they are.
void Print(const std::string& title, const Table& table, const Table& less) {
  std::printf("%s\n   p      TP          TP + SP       METP c = p     METP c = 32\n", title.c_str());
  for (size_t i = 0; i < std::size(kRings); ++i) {
    const auto units = [&](size_t way) {
      return (table.peaks[i][way] - less.peaks[i][way]) / (table.elements - less.elements);
    };
    std::printf("%4d  %6.3f", kRings[i], units(0));
    for (size_t way = 1; way < kWays; ++way)
      std::printf("  %6.3f (%4.1f %%)", units(way), 100 * (1 - units(way) / units(0)));
    std::printf("\n");
  }
}

}  // namespace
}  // namespace metp

int main(int argc, char** argv) {
  std::vector<int64_t> multiples = {16, 32};
  if (argc > 1) {
    multiples.clear();
    for (int i = 1; i < argc; ++i) multiples.push_back(std::max(1, std::atoi(argv[i])));
  }
  std::vector<metp::Table> tables;
  double worst = 0;
  std::printf("Peaks in units of s h elements; in brackets, how much less than TP.\n");
  for (int64_t multiple : multiples) {
    tables.push_back(metp::Measure(multiple));
    metp::Print("s = " + std::to_string(multiple) + " h", tables.back(), {});
    worst = std::max(worst, tables.back().worst);
  }
  if (tables.size() > 1 && tables.back().elements > tables.front().elements) {
    metp::Print(
        "weights and gradients under way taken off (what grows with s, from the first length to the last)",
        tables.back(), tables.front());
  }
  std::printf("largest difference of Y and dX between the ways, relative: %.1e\n", worst);
  return worst < 1e-4 ? 0 : 1;
}
