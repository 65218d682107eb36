// A library of fused attention for the emulated device: its work waits on a stream, its results are those of the definition,
// in double and rounded once.

#include <cuda_runtime.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "tests/cuda_emulation/engine.h"
#include "tests/worker/backend/library_under_test.h"

namespace metp::testing {
namespace {

using cuda::FusedAttention;
using cuda::FusedBackward;
using cuda::FusedBlock;
using cuda::FusedForward;

constexpr int64_t kWorkspaceBytes = 1000;

/// rows of `width` bf16, `stride` apart, as doubles.
std::vector<double> Load(const void* from, int64_t rows, int64_t width, int64_t stride) {
  std::vector<double> loaded;
  for (int64_t row = 0; row < rows; ++row) {
    const auto* at = static_cast<const uint16_t*>(from) + row * stride;
    emulation::Read(at, static_cast<size_t>(2 * width));
    for (int64_t i = 0; i < width; ++i)
      loaded.push_back(std::bit_cast<float>(static_cast<uint32_t>(at[i]) << 16));
  }
  return loaded;
}

void Store(const std::vector<double>& from, void* to) {
  emulation::Write(to, 2 * from.size());
  auto* at = static_cast<uint16_t*>(to);
  for (double x : from) {
    const auto bits = std::bit_cast<uint32_t>(static_cast<float>(x));
    *at++ = static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  }
}

/// One head of a block: rows of q against rows of k.
struct Head {
  const FusedBlock& x;
  const std::vector<double>&q, &k, &v;
  int head;

  int64_t d() const { return x.head_dim; }
  int64_t q_at(int64_t row) const { return (row * x.heads + head) * d(); }
  int64_t k_at(int64_t row) const { return (row * x.kv_heads + head * x.kv_heads / x.heads) * d(); }
  int64_t seen(int64_t row) const { return x.diagonal ? row + 1 : x.nk; }
  double Score(int64_t i, int64_t j) const { return x.scale * Dot(q, q_at(i), k, k_at(j)); }
  double Dot(const std::vector<double>& a, int64_t a_at, const std::vector<double>& b, int64_t b_at) const {
    double sum = 0;
    for (int64_t l = 0; l < d(); ++l) sum += a[a_at + l] * b[b_at + l];
    return sum;
  }
};

void RunForward(const FusedBlock& x, const FusedForward& in) {
  emulation::Write(in.workspace, kWorkspaceBytes);
  const int64_t wq = int64_t{x.heads} * x.head_dim, wk = int64_t{x.kv_heads} * x.head_dim;
  const std::vector<double> q = Load(in.q, x.nq, wq, x.q_stride), k = Load(in.k, x.nk, wk, x.k_stride),
                            v = Load(in.v, x.nk, wk, x.v_stride);
  std::vector<double> o(static_cast<size_t>(x.nq * wq));
  emulation::Write(in.lse, sizeof(float) * x.heads * x.nq);
  for (int head = 0; head < x.heads; ++head) {
    const Head at{x, q, k, v, head};
    for (int64_t i = 0; i < x.nq; ++i) {
      std::vector<double> p(static_cast<size_t>(at.seen(i)));
      for (int64_t j = 0; j < at.seen(i); ++j) p[j] = at.Score(i, j);
      const double most = *std::max_element(p.begin(), p.end());
      double sum = 0;
      for (double s : p) sum += std::exp(s - most);
      in.lse[head * x.nq + i] = static_cast<float>(most + std::log(sum));
      for (int64_t j = 0; j < at.seen(i); ++j) {
        for (int64_t l = 0; l < at.d(); ++l)
          o[at.q_at(i) + l] += std::exp(p[j] - most) / sum * v[at.k_at(j) + l];
      }
    }
  }
  Store(o, in.o);
}

void RunBackward(const FusedBlock& x, const FusedBackward& in) {
  emulation::Write(in.workspace, kWorkspaceBytes);
  const int64_t wq = int64_t{x.heads} * x.head_dim, wk = int64_t{x.kv_heads} * x.head_dim;
  const std::vector<double> q = Load(in.q, x.nq, wq, x.q_stride), k = Load(in.k, x.nk, wk, x.k_stride),
                            v = Load(in.v, x.nk, wk, x.v_stride), o = Load(in.o, x.nq, wq, x.o_stride),
                            d_o = Load(in.d_o, x.nq, wq, x.d_o_stride);
  std::vector<double> dq(q.size()), dk(k.size()), dv(v.size());
  emulation::Read(in.lse, sizeof(float) * x.heads * x.nq);
  for (int head = 0; head < x.heads; ++head) {
    const Head at{x, q, k, v, head};
    for (int64_t i = 0; i < x.nq; ++i) {
      const int64_t row = at.q_at(i);
      const double delta = at.Dot(d_o, row, o, row);
      for (int64_t j = 0; j < at.seen(i); ++j) {
        const int64_t key = at.k_at(j);
        const double p = std::exp(at.Score(i, j) - in.lse[head * x.nq + i]);
        const double ds = p * (at.Dot(d_o, row, v, key) - delta) * x.scale;
        for (int64_t l = 0; l < at.d(); ++l) {
          dq[row + l] += ds * k[key + l];
          dk[key + l] += ds * q[row + l];
          dv[key + l] += p * d_o[row + l];
        }
      }
    }
  }
  Store(dq, in.dq);
  Store(dk, in.dk);
  Store(dv, in.dv);
}

class EmulatedLibrary final : public FusedAttention {
 public:
  explicit EmulatedLibrary(cudaStream_t stream) : stream_(stream) {}
  std::string Describe() const override { return kEmulatedLibrary; }
  std::optional<int64_t> ForwardWorkspace(const FusedBlock& x) override { return Workspace(x); }
  std::optional<int64_t> BackwardWorkspace(const FusedBlock& x) override { return Workspace(x); }
  void Forward(const FusedBlock& x, const FusedForward& operands) override {
    emulation::Enqueue(stream_, "fused attention forward", [=] { RunForward(x, operands); });
  }
  void Backward(const FusedBlock& x, const FusedBackward& operands) override {
    emulation::Enqueue(stream_, "fused attention backward", [=] { RunBackward(x, operands); });
  }

 private:
  static std::optional<int64_t> Workspace(const FusedBlock& x) {
    if (x.head_dim > 128) return std::nullopt;
    return kWorkspaceBytes;
  }
  const cudaStream_t stream_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<FusedAttention>> OpenLibraryUnderTest(cudaStream_t stream) {
  return std::make_unique<EmulatedLibrary>(stream);
}

}  // namespace metp::testing
